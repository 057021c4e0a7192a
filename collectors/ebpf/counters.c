//go:build ignore
// SPDX-License-Identifier: MIT OR GPL-2.0
// What tcp_info does not count of a connection, by the connection's cookie. Programs run at tracepoints and behind
// functions of the kernel, all but kfree_skb under the lock of the socket. Of the kernel's structures those members are
// named that are read; where they are in the running kernel is found by their names at loading (CO-RE).
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/tcp.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

char _license[] SEC("license") = "Dual MIT/GPL"; // without it the kernel offers no bpf_probe_read_kernel

typedef struct {
	__s64 counter;
} atomic64_t;

struct net {
	struct {
		unsigned int inum;
	} ns;
} __attribute__((preserve_access_index));

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	__be16 skc_dport;
	__u16 skc_num;
	possible_net_t skc_net;
	atomic64_t skc_cookie;
} __attribute__((preserve_access_index));

struct sock {
	struct sock_common __sk_common;
} __attribute__((preserve_access_index));

struct inet_connection_sock {
	__u8 icsk_ca_state : 5;
	__u8 icsk_retransmits;
} __attribute__((preserve_access_index));

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 snd_una, segs_in, packets_out, delivered, high_seq, undo_marker, srtt_us, mdev_us;
} __attribute__((preserve_access_index));

struct sk_buff {
	struct sock *sk;
	unsigned int len;
	char cb[48];
	unsigned char *head, *data;
	unsigned int end;
} __attribute__((preserve_access_index));

struct tcp_skb_cb {
	__u32 ack_seq;
} __attribute__((preserve_access_index));

struct skb_shared_info {
	unsigned short gso_segs;
} __attribute__((preserve_access_index));

// Reasons for which a host's own queue drops a packet. Kernels have some of them, with numbers of their own.
enum skb_drop_reason {
	SKB_DROP_REASON_QDISC_DROP,
	SKB_DROP_REASON_QDISC_OVERLIMIT,
	SKB_DROP_REASON_QDISC_CONGESTED,
	SKB_DROP_REASON_FQ_BAND_LIMIT,
	SKB_DROP_REASON_FQ_HORIZON_LIMIT,
	SKB_DROP_REASON_FQ_FLOW_LIMIT,
};

// Their order is that of Fields in ebpf.go.
struct counters {
	__s64 segs_seen; // and those before: tcp_info's segs_in, unless segments were not seen
	__s64 dup_acks_in;
	__s64 congestion_signals; // the sum of the next five
	__s64 signals_fast_retransmit;
	__s64 signals_timeout;
	__s64 signals_ecn;
	__s64 signals_send_stall;
	__s64 signals_other;
	__s64 fast_retransmits;
	__s64 send_stalls;
	__s64 rtt_samples;
	__s64 rtt_sum_us;
	__s64 rtt_last_us;
	__s64 rtt_min_us;
	__s64 rtt_max_us;
};

struct connection {
	struct counters counters;
	__u32 srtt_us, mdev_us, delivered; // before the last segment
	__u32 snd_una;                     // after it
	__u8 ece;                          // it had ECE
	__u8 stalled;                      // the own queue has dropped since it
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct connection);
} connections SEC(".maps");

__u8 ports[65536];         // 1 for each that is counted
__u64 refused;             // connections beyond the map's size
const volatile __u32 ends; // of a connection's two ports, how many have to be among them
const volatile __u32 netns;

static struct connection *find(struct sock *sk)
{
	__u64 cookie = sk->__sk_common.skc_cookie.counter;

	return bpf_map_lookup_elem(&connections, &cookie);
}

static bool watched(struct sock *sk)
{
	__u32 local = sk->__sk_common.skc_num, remote = bpf_ntohs(sk->__sk_common.skc_dport);

	// For the verifier of Linux 6.1, which does not know that they have 16 bits.
	barrier_var(local);
	barrier_var(remote);
	return ports[local & 0xffff] + ports[remote & 0xffff] >= ends && sk->__sk_common.skc_net.net->ns.inum == netns;
}

// begin starts to count a connection, before the last so many of its segments.
static struct connection *begin(struct sock *sk, __u32 segments)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	__u64 cookie = bpf_get_socket_cookie(sk);
	struct connection new = {};

	if (!tp)
		return NULL;
	new.counters.segs_seen = tp->segs_in - segments;
	new.srtt_us = tp->srtt_us;
	new.mdev_us = tp->mdev_us;
	new.delivered = tp->delivered;
	new.snd_una = tp->snd_una;
	if (bpf_map_update_elem(&connections, &cookie, &new, BPF_NOEXIST))
		__sync_fetch_and_add(&refused, 1);
	return bpf_map_lookup_elem(&connections, &cookie);
}

// take_rtt finds the sample that the segment before has given. tcp_rtt_estimator() adds to srtt_us, eight times the mean,
// what a sample differs from the mean: srtt_us before and after tell the sample. One that does not differ changes
// mdev_us, four times the deviation, unless that is below 1 us.
static void take_rtt(struct connection *c, struct tcp_sock *tp)
{
	struct counters *n = &c->counters;
	__u32 before = c->srtt_us, srtt = tp->srtt_us, mdev = tp->mdev_us, delivered = tp->delivered;
	bool sampled = srtt != before || mdev != c->mdev_us || (mdev < 4 && delivered != c->delivered);
	__s64 rtt = (__s32)(before ? srtt - before + (before >> 3) : srtt >> 3);

	c->srtt_us = srtt;
	c->mdev_us = mdev;
	c->delivered = delivered;
	// A segment that was not seen may have given another.
	if (!sampled || tp->snd_una != c->snd_una || rtt < 0)
		return;
	n->rtt_samples++;
	n->rtt_sum_us += rtt;
	n->rtt_last_us = rtt;
	if (n->rtt_samples == 1 || rtt < n->rtt_min_us)
		n->rtt_min_us = rtt;
	if (rtt > n->rtt_max_us)
		n->rtt_max_us = rtt;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(inet_sock_set_state, struct sock *sk, int before, int state)
{
	if (state == BPF_TCP_ESTABLISHED && watched(sk))
		begin(sk, 0);
	return 0;
}

// A segment for an established connection arrives; TCP has not looked at it yet.
SEC("tp_btf/tcp_probe")
int BPF_PROG(tcp_probe, struct sock *sk, struct sk_buff *skb)
{
	struct skb_shared_info *shared;
	struct connection *c;
	struct tcp_sock *tp;
	__u32 segments, ack;
	struct tcphdr th;

	if (!watched(sk))
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp || bpf_probe_read_kernel(&th, sizeof(th), skb->data))
		return 0;
	// Those that found the socket busy may be one by now, with the newest ack_seq (tcp_add_backlog()).
	shared = (struct skb_shared_info *)(skb->head + skb->end);
	segments = BPF_CORE_READ(shared, gso_segs) ?: 1;
	ack = BPF_CORE_READ((struct tcp_skb_cb *)skb->cb, ack_seq);
	c = find(sk) ?: begin(sk, segments);
	if (!c)
		return 0;
	c->counters.segs_seen += segments;
	take_rtt(c, tp);
	c->snd_una = (__s32)(ack - tp->snd_una) > 0 ? ack : tp->snd_una;
	c->ece = th.ece;
	c->stalled = 0;
	if (skb->len == th.doff * 4 && !th.syn && !th.fin && !th.rst && ack == tp->snd_una && tp->packets_out)
		c->counters.dup_acks_in += segments;
	return 0;
}

// The state of congestion control is about to change, or to be set again. Signals are counted where the kernel asks the
// congestion control for a new ssthresh.
SEC("tp_btf/tcp_cong_state_set")
int BPF_PROG(tcp_cong_state_set, struct sock *sk, __u8 state)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct connection *c = find(sk);
	struct counters *n;
	__u8 before;

	if (!tp || !c)
		return 0;
	n = &c->counters;
	before = BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_state);
	switch (state) {
	case TCP_CA_CWR:
		n->congestion_signals++;
		if (c->stalled)
			n->signals_send_stall++;
		else if (c->ece)
			n->signals_ecn++;
		else // a tail loss probe has repaired a loss, or the congestion control itself asks for it
			n->signals_other++;
		break;
	case TCP_CA_Recovery:
		n->fast_retransmits++;
		if (before == TCP_CA_CWR)
			break; // one reduction for both
		n->congestion_signals++;
		n->signals_fast_retransmit++;
		break;
	case TCP_CA_Loss:
		// As in tcp_enter_loss(). A smaller path MTU has no undo_marker: tcp_simple_retransmit() is no timeout.
		if (!tp->undo_marker ||
		    (before > TCP_CA_Disorder && (__s32)(tp->high_seq - tp->snd_una) > 0 &&
		     (before != TCP_CA_Loss || tp->inet_conn.icsk_retransmits)))
			break;
		n->congestion_signals++;
		n->signals_timeout++;
		break;
	}
	return 0;
}

static int stall(struct sock *sk)
{
	struct connection *c = find(sk);

	if (c) {
		__sync_fetch_and_add(&c->counters.send_stalls, 1);
		c->stalled = 1;
	}
	return 0;
}

// What TCP asks before it enters CWR: NET_XMIT_DROP or NET_XMIT_CN, the own queue had no room.
SEC("fexit/ip_queue_xmit")
int BPF_PROG(ip_queue_xmit, struct sock *sk, struct sk_buff *skb, void *flow, int verdict)
{
	return verdict > 0 ? stall(sk) : 0;
}

SEC("fexit/inet6_csk_xmit")
int BPF_PROG(inet6_csk_xmit, struct sock *sk, struct sk_buff *skb, void *flow, int verdict)
{
	return verdict > 0 ? stall(sk) : 0;
}

#define IS(reason, name) \
	(bpf_core_enum_value_exists(enum skb_drop_reason, SKB_DROP_REASON_##name) && \
	 (reason) == bpf_core_enum_value(enum skb_drop_reason, SKB_DROP_REASON_##name))

// Instead of the two before, where programs cannot run behind functions.
SEC("tp_btf/kfree_skb")
int BPF_PROG(kfree_skb, struct sk_buff *skb, void *location, __u32 reason)
{
	struct sock *sk;

	if (!IS(reason, QDISC_DROP) && !IS(reason, QDISC_OVERLIMIT) && !IS(reason, QDISC_CONGESTED) &&
	    !IS(reason, FQ_BAND_LIMIT) && !IS(reason, FQ_HORIZON_LIMIT) && !IS(reason, FQ_FLOW_LIMIT))
		return 0;
	sk = skb->sk;
	return sk ? stall(sk) : 0;
}
