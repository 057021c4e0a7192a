# $seconds of a flow from s to r: with arm=tcp the kernel's, by the congestion control $control, in iperf3.json, else one of atou
# by the file sender.conf, in sender.json.
if [ $arm = tcp ]; then
    modprobe -a tcp_highspeed tcp_scalable tcp_vegas
    for ns in s r; do
        ip netns exec $ns sysctl -qw net.ipv4.tcp_rmem='4096 8388608 33554432' net.ipv4.tcp_wmem='4096 4194304 33554432'
    done
    ip netns exec r iperf3 --server --one-off >server.txt 2>&1 &
    server=$!
    sleep 1
    ip netns exec s iperf3 --client 10.0.3.2 --time $seconds --congestion $control --json >iperf3.json
else
    (umask 077; head -c 32 /dev/urandom | base64 >/tmp/token)
    ip netns exec r $atou serve --token-file /tmp/token receiver.conf >receiver.json &
    server=$!
    sleep 1
    ip netns exec s $atou send --token-file /tmp/token --json sender.json sender.conf >summary.txt 2>events.txt
    kill $server
fi
wait $server
