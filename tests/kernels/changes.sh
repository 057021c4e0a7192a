# A connection from s to r changes its congestion control, again and again, while that is loaded and unloaded.
modprobe tcp_bbr
ip netns exec r python3 $changes sink &
sleep 1
ip netns exec s python3 $changes source $times $controls
wait
