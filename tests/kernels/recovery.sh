# $seconds of a flow from s to r by the congestion control $control, and what was traced of it: by $collect, if given, in traced.lp,
# else its tcp_probe alone, in probes.txt.
#   mode: of s, net.ipv4.tcp_cwnd_reduction_mode, where the kernel has it
if [ -n "$mode" ]; then
    ip netns exec s sysctl -qw net.ipv4.tcp_cwnd_reduction_mode=$mode
fi
insmod ./tcp_recovery.ko
tracing=/sys/kernel/tracing
if [ -n "$collect" ]; then
    $collect trace --tuple 10.0.1.1:40001,10.0.3.2:5201 --interval 100ms --spool traced.lp &
    collector=$!
else
    echo 16384 >$tracing/buffer_size_kb
    echo mono >$tracing/trace_clock
    echo "sport == 40001" >$tracing/events/tcp/tcp_probe/filter
    echo 1 >$tracing/events/tcp/tcp_probe/enable
fi
ip netns exec r iperf3 --server --one-off >server.txt 2>&1 &
server=$!
sleep 1
ip netns exec s iperf3 --client 10.0.3.2 --time $seconds --congestion $control --bind 10.0.1.1 --cport 40001 --json >iperf3.json
wait $server
if [ -n "$collect" ]; then
    sleep 1
    kill $collector
    wait $collector || true
else
    cat $tracing/trace >probes.txt
fi
ip netns exec s nstat -asz TcpExtTCPSackRecovery TcpExtTCPTimeouts TcpRetransSegs TcpExtTCPLossProbes TcpExtTCPSACKReorder
tc -n m -s qdisc show dev m1
tc -n d -s qdisc show dev d1
