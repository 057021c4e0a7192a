# Hosts s and r as namespaces, and between them a router m with the bottleneck and a router d that delays packets: by default
# 20 Mbit/s, 50 ms, 40 packets.
#   rate, delay, queue: of the bottleneck in Mbit/s, each way in ms, of the bottleneck in packets
#   burst: bytes that the bottleneck lets through at once; by default what its rate has in a tick, so that few packets are apart
#   loss: of netem, such as "loss 1%", or nothing
for ns in s m d r; do
    ip netns add $ns
    ip -n $ns link set lo up
    ip netns exec $ns sysctl -qw net.ipv4.ip_forward=1 net.ipv4.tcp_no_metrics_save=1
done
link() { # namespace, device, address, namespace, device, address
    ip link add $2 netns $1 type veth peer name $5 netns $4
    ip -n $1 addr add $3/24 dev $2
    ip -n $4 addr add $6/24 dev $5
    ip -n $1 link set $2 up gso_max_segs 1
    ip -n $4 link set $5 up gso_max_segs 1
}
link s s0 10.0.1.1 m m0 10.0.1.2
link m m1 10.0.2.1 d d0 10.0.2.2
link d d1 10.0.3.1 r r0 10.0.3.2
ip -n s route add default via 10.0.1.2
ip -n m route add 10.0.3.0/24 via 10.0.2.2
ip -n d route add 10.0.1.0/24 via 10.0.2.1
ip -n r route add default via 10.0.3.1
tc -n m qdisc add dev m1 root handle 1: htb default 1
tc -n m class add dev m1 parent 1: classid 1:1 htb rate ${rate:-20}mbit ${burst:+burst $burst cburst $burst} quantum 1514
tc -n m qdisc add dev m1 parent 1:1 handle 2: pfifo limit ${queue:-40}
tc -n d qdisc add dev d1 root netem delay ${delay:-25}ms $loss limit 10000
tc -n d qdisc add dev d0 root netem delay ${delay:-25}ms limit 10000
