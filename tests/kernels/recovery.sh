# $seconds of a flow from s to r by the congestion control $control, and what was traced of it in traced.lp.
#   mode: of s, net.ipv4.tcp_cwnd_reduction_mode, where the kernel has it
if [ -n "$mode" ]; then
    ip netns exec s sysctl -qw net.ipv4.tcp_cwnd_reduction_mode=$mode
fi
insmod ./tcp_recovery.ko
ip netns exec r iperf3 --server --one-off >server.txt 2>&1 &
server=$!
$collect trace --tuple 10.0.1.1:40001,10.0.3.2:5201 --interval 100ms --spool traced.lp &
collector=$!
sleep 1
ip netns exec s iperf3 --client 10.0.3.2 --time $seconds --congestion $control --bind 10.0.1.1 --cport 40001 --json >iperf3.json
wait $server
sleep 1
kill $collector
wait $collector || true
ip netns exec s nstat -asz TcpExtTCPSackRecovery TcpExtTCPTimeouts TcpRetransSegs TcpExtTCPLossProbes TcpExtTCPSACKReorder
tc -n m -s qdisc show dev m1
