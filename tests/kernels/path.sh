# A sender, a router and a receiver of one kernel. Data crosses a bottleneck of $RATE_MBIT with a queue of $QUEUE packets and room
# for $BURST bytes at once; ACKs are $DELAY_MS late.
within="/usr/bin/python3 $HERE/within.py"
for host in sender router receiver; do
    ip netns add $host
    ip -n $host link set lo up
done
ip link add left netns router type veth peer name out netns sender
ip link add right netns router type veth peer name in netns receiver
for of in sender,out,198.18.1.11/24 router,left,198.18.1.1/24 router,right,198.18.2.1/24 receiver,in,198.18.2.11/24; do
    IFS=, read -r host device address <<END
$of
END
    ip -n $host address add $address dev $device
    ip -n $host link set $device up
done
ip netns exec router sysctl -qw net.ipv4.ip_forward=1
ip netns exec sender $within route 198.18.2.0/24 198.18.1.1 out
ip netns exec receiver $within route 198.18.1.0/24 198.18.2.1 in
for host in sender receiver; do
    ip netns exec $host sysctl -qw net.ipv4.tcp_no_metrics_save=1 net.ipv4.tcp_wmem='4096 4194304 16777216' \
        net.ipv4.tcp_rmem='4096 4194304 16777216'
done
tc -n router qdisc add dev right root handle 1: htb default 1
tc -n router class add dev right parent 1: classid 1:1 htb rate ${RATE_MBIT}mbit burst $BURST cburst $BURST quantum 1514
tc -n router qdisc add dev right parent 1:1 handle 10: pfifo limit $QUEUE
tc -n router qdisc add dev left root netem delay ${DELAY_MS}ms limit 100000
