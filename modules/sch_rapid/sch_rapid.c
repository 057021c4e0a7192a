// SPDX-License-Identifier: GPL-2.0
/* The sender's queue of TCP Rapid: gaps, a share for each flow, and retransmissions that may go first.
 *
 * With queue=buggy it sends what TCP sends again before what waits, as the original did. Timestamps were written
 * before the segments were queued, so that a receiver gets older ones after newer ones, and rejects them (PAWS).
 *
 * One file, as the qdiscs of the kernel are: all of it shares the static parameters and the private structure.
 */
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/jhash.h>
#include <linux/module.h>
#include <linux/tcp.h>
#include <net/pkt_sched.h>
#include <net/tcp.h>

#define BUCKETS 1024
#define MOST_FLOWS 8192 /* of which those that wait for nothing are forgotten, the oldest first */
#define QUANTUM 1514 /* bytes that a flow is served in a round */

static unsigned int limit = 1000;
module_param(limit, uint, 0644);
MODULE_PARM_DESC(limit, "packets that may wait; more are dropped");

static bool orphan = true;
module_param(orphan, bool, 0644);
MODULE_PARM_DESC(orphan, "do not count packets that wait against TCP small queues");

static bool gap;
module_param(gap, bool, 0644);
MODULE_PARM_DESC(gap, "hold packets until the departure times that TCP gives them, and have it queue them at once");

static unsigned long rate;
module_param(rate, ulong, 0644);
MODULE_PARM_DESC(rate, "bit/s of a line that packets leave by; 0: as fast as the interface takes them");

static bool fair = true;
module_param(fair, bool, 0644);
MODULE_PARM_DESC(fair, "serve flows in turn, as many bytes of each");

enum order { FIFO, BUGGY, RESTAMP };
static const char *const orders[] = { "fifo", "buggy", "restamp" };
static unsigned int order = FIFO;

static int order_set(const char *text, const struct kernel_param *parameter)
{
	int found = sysfs_match_string(orders, text);

	if (found < 0)
		return found;
	WRITE_ONCE(order, found);
	return 0;
}

static int order_get(char *buffer, const struct kernel_param *parameter)
{
	return sysfs_emit(buffer, "%s\n", orders[READ_ONCE(order)]);
}

static const struct kernel_param_ops order_ops = { .set = order_set, .get = order_get };
module_param_cb(queue, &order_ops, NULL, 0644);
__MODULE_PARM_TYPE(queue, "charp");
MODULE_PARM_DESC(queue, "order of a flow's packets: fifo; buggy: retransmissions first; restamp: those first, and timestamps that never go back");

struct rapid_key {
	struct in6_addr src, dst; /* IPv4 mapped */
	__be16 src_port, dst_port;
	u32 protocol;
};

struct rapid_flow {
	struct hlist_node node;
	struct list_head list; /* active or idle; of neither while its packets are in the shared queue */
	struct rapid_key key;
	struct qdisc_skb_head fresh, again;
	unsigned int waiting; /* packets of it, in its own queue or the shared one */
	int deficit; /* bytes */
	u32 edge; /* the highest sequence number queued */
	u32 tsval; /* the newest sent */
	bool has_edge, has_tsval;
};

/* What its kind adds to the statistics of a qdisc: collectors/qdisc knows the layout. */
struct rapid_xstats {
	u64 retrans; /* segments queued that were queued before */
	u64 jumped; /* of them, sent before others of their flow that waited longer */
	u64 ts_regressions; /* segments sent with a timestamp older by more than a tick than one sent before */
	u64 restamped; /* timestamps written anew */
	u32 maxq; /* most packets that waited */
	u32 flows; /* that are known */
};

struct rapid {
	struct hlist_head buckets[BUCKETS];
	struct list_head active, idle;
	struct rapid_flow shared; /* holds the packets of all where flows have no share of their own */
	struct qdisc_watchdog watchdog;
	u64 free_at; /* when the line has sent its last packet, ns */
	u32 seed;
	struct rapid_xstats stats;
};

struct rapid_cb {
	struct rapid_flow *flow;
	u32 tsval;
	u16 tcp_at; /* from the packet's begin */
	u8 tsval_at; /* from TCP's header; 0: it has none */
	u8 data : 1, paced : 1;
};

static struct rapid_cb *mark(const struct sk_buff *skb)
{
	qdisc_cb_private_validate(skb, sizeof(struct rapid_cb));
	return (struct rapid_cb *)qdisc_skb_cb(skb)->data;
}

/* What TCP's header says; nothing of other packets, which are all of one flow, as later fragments are. */
struct rapid_segment {
	struct rapid_key key;
	u32 seq, end;
	u32 tsval;
	u16 tcp_at;
	u8 tsval_at;
	bool syn;
};

static void find_tsval(const struct sk_buff *skb, int at, int end, struct rapid_segment *segment)
{
	while (at < end) {
		u8 buffer[TCPOLEN_TIMESTAMP];
		const u8 *option = skb_header_pointer(skb, at, min_t(int, end - at, sizeof(buffer)), buffer);

		if (!option || option[0] == TCPOPT_EOL)
			return;
		if (option[0] == TCPOPT_NOP) {
			at++;
			continue;
		}
		if (end - at < 2 || option[1] < 2)
			return;
		if (option[0] == TCPOPT_TIMESTAMP && option[1] == TCPOLEN_TIMESTAMP && end - at >= TCPOLEN_TIMESTAMP) {
			segment->tsval_at = at + 2 - segment->tcp_at;
			segment->tsval = get_unaligned_be32(option + 2);
			return;
		}
		at += option[1];
	}
}

static void dissect(const struct sk_buff *skb, struct rapid_segment *segment)
{
	int at = skb_network_offset(skb), end;
	struct tcphdr tcp_buffer;
	const struct tcphdr *tcp;

	memset(segment, 0, sizeof(*segment));
	switch (skb_protocol(skb, true)) {
	case htons(ETH_P_IP): {
		struct iphdr buffer;
		const struct iphdr *ip = skb_header_pointer(skb, at, sizeof(buffer), &buffer);

		if (!ip || ip->protocol != IPPROTO_TCP || ip_is_fragment(ip))
			return;
		end = skb_is_gso(skb) ? skb->len : at + ntohs(ip->tot_len);
		at += 4 * ip->ihl;
		ipv6_addr_set_v4mapped(ip->saddr, &segment->key.src);
		ipv6_addr_set_v4mapped(ip->daddr, &segment->key.dst);
		break;
	}
	case htons(ETH_P_IPV6): {
		struct ipv6hdr buffer;
		const struct ipv6hdr *ip = skb_header_pointer(skb, at, sizeof(buffer), &buffer);

		if (!ip || ip->nexthdr != IPPROTO_TCP)
			return;
		end = skb_is_gso(skb) ? skb->len : at + (int)sizeof(*ip) + ntohs(ip->payload_len);
		at += sizeof(*ip);
		segment->key.src = ip->saddr;
		segment->key.dst = ip->daddr;
		break;
	}
	default:
		return;
	}
	tcp = skb_header_pointer(skb, at, sizeof(tcp_buffer), &tcp_buffer);
	if (!tcp || tcp->doff < 5 || end < at + 4 * tcp->doff) {
		memset(&segment->key, 0, sizeof(segment->key));
		return;
	}
	segment->key.protocol = IPPROTO_TCP;
	segment->key.src_port = tcp->source;
	segment->key.dst_port = tcp->dest;
	segment->tcp_at = at;
	segment->syn = tcp->syn;
	segment->seq = ntohl(tcp->seq);
	segment->end = segment->seq + end - at - 4 * tcp->doff;
	find_tsval(skb, at + sizeof(*tcp), at + 4 * tcp->doff, segment);
}

static void forget(struct rapid *q, struct rapid_flow *flow)
{
	hlist_del(&flow->node);
	list_del(&flow->list);
	kfree(flow);
	q->stats.flows--;
}

static struct rapid_flow *flow_of(struct rapid *q, const struct rapid_key *key)
{
	struct hlist_head *bucket =
		&q->buckets[jhash2((const u32 *)key, sizeof(*key) / sizeof(u32), q->seed) % BUCKETS];
	struct rapid_flow *flow;

	hlist_for_each_entry(flow, bucket, node)
		if (!memcmp(&flow->key, key, sizeof(*key)))
			return flow;
	if (q->stats.flows >= MOST_FLOWS) {
		flow = list_first_entry_or_null(&q->idle, struct rapid_flow, list);
		if (!flow)
			return NULL;
		forget(q, flow);
	}
	flow = kzalloc(sizeof(*flow), GFP_ATOMIC | __GFP_NOWARN);
	if (!flow)
		return NULL;
	flow->key = *key;
	hlist_add_head(&flow->node, bucket);
	list_add_tail(&flow->list, &q->idle);
	q->stats.flows++;
	return flow;
}

/* As fq does: TCP leaves it to the queue to pace, and sends all that its window allows at once. The congestion control is asked
 * for a rate once for all of it. Here it is asked for each packet: TCP is about to send it, and then sets the departure of the
 * next one by the rate. Without gaps TCP paces by itself again.
 */
static void pace(struct sock *sk, const struct rapid_segment *segment, bool gaps)
{
	const struct tcp_congestion_ops *control;

	if ((smp_load_acquire(&sk->sk_pacing_status) == SK_PACING_FQ) != gaps)
		smp_store_release(&sk->sk_pacing_status, gaps ? SK_PACING_FQ : SK_PACING_NEEDED);
	if (!gaps)
		return;
	if (segment->end == segment->seq || segment->seq != READ_ONCE(tcp_sk(sk)->snd_nxt))
		return;
	control = inet_csk(sk)->icsk_ca_ops;
	if (control->min_tso_segs)
		control->min_tso_segs(sk);
}

static int rapid_enqueue(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
{
	struct rapid *q = qdisc_priv(sch);
	struct sock *sk = skb->sk;
	struct rapid_segment segment;
	struct rapid_flow *flow, *queue;
	bool again = false;
	struct rapid_cb *m;

	if (unlikely(sch->q.qlen >= READ_ONCE(limit)))
		return qdisc_drop(skb, sch, to_free);
	dissect(skb, &segment);
	flow = flow_of(q, &segment.key);
	if (unlikely(!flow))
		return qdisc_drop(skb, sch, to_free);

	m = mark(skb);
	*m = (struct rapid_cb){
		.flow = flow,
		.tsval = segment.tsval,
		.tcp_at = segment.tcp_at,
		.tsval_at = segment.tsval_at,
		.data = segment.end != segment.seq,
	};
	if (segment.syn)
		flow->has_edge = flow->has_tsval = false; /* the ports may have been another connection's */
	if (m->data) {
		again = flow->has_edge && !after(segment.end, flow->edge);
		if (!again)
			flow->edge = segment.end;
		flow->has_edge = true;
		q->stats.retrans += again;
	}
	/* A raw socket sends TCP's headers too, and a listener has no pace that its connections should inherit. */
	if (segment.key.protocol && sk && sk_fullsock(sk) && sk_is_tcp(sk) && !sk_listener(sk)) {
		m->paced = READ_ONCE(gap);
		pace(sk, &segment, m->paced);
	}
	if (READ_ONCE(orphan))
		skb_orphan_partial(skb);

	if (!flow->waiting++)
		list_del_init(&flow->list);
	queue = READ_ONCE(fair) ? flow : &q->shared;
	if (list_empty(&queue->list))
		list_add_tail(&queue->list, &q->active);
	__qdisc_enqueue_tail(skb, again && READ_ONCE(order) != FIFO ? &queue->again : &queue->fresh);
	qdisc_qstats_backlog_inc(sch, skb);
	q->stats.maxq = max(q->stats.maxq, ++sch->q.qlen);
	return NET_XMIT_SUCCESS;
}

/* When the next packet of a queue may leave, in ns: what is sent again at once. */
static u64 due(const struct rapid_flow *queue)
{
	const struct sk_buff *skb = queue->fresh.head;

	return !queue->again.head && mark(skb)->paced ? ktime_to_ns(skb->tstamp) : 0;
}

/* The queue whose turn it is. If there is none yet, the watchdog wakes this qdisc when there is. */
static struct rapid_flow *turn(struct rapid *q, u64 now)
{
	struct rapid_flow *queue, *next;
	u64 soonest = U64_MAX;
	bool refilled;

	if (q->free_at > now && READ_ONCE(rate)) {
		qdisc_watchdog_schedule_ns(&q->watchdog, q->free_at);
		return NULL;
	}
	do {
		refilled = false;
		list_for_each_entry_safe(queue, next, &q->active, list) {
			u64 at = due(queue);

			if (at > now) {
				soonest = min(soonest, at);
			} else if (queue->deficit > 0) {
				return queue;
			} else {
				queue->deficit += QUANTUM;
				list_move_tail(&queue->list, &q->active);
				refilled = true;
			}
		}
	} while (refilled);
	if (soonest != U64_MAX)
		qdisc_watchdog_schedule_ns(&q->watchdog, soonest);
	return NULL;
}

static void restamp(struct rapid *q, struct sk_buff *skb, u32 tsval)
{
	struct rapid_cb *m = mark(skb);
	unsigned int at = m->tcp_at + m->tsval_at;
	__be32 old = htonl(m->tsval), new = htonl(tsval);
	struct tcphdr *tcp;

	if (skb_ensure_writable(skb, at + sizeof(new)))
		return;
	tcp = (struct tcphdr *)(skb->data + m->tcp_at);
	memcpy(skb->data + at, &new, sizeof(new));
	inet_proto_csum_replace4(&tcp->check, skb, old, new, false);
	m->tsval = tsval;
	q->stats.restamped++;
}

/* Timestamps are looked at as they leave, in the order in which a receiver gets them. */
static void look_at_tsval(struct rapid *q, struct sk_buff *skb)
{
	struct rapid_cb *m = mark(skb);
	struct rapid_flow *flow = m->flow;

	if (!m->tsval_at)
		return;
	if (flow->has_tsval && before(m->tsval, flow->tsval)) {
		if (READ_ONCE(order) == RESTAMP)
			restamp(q, skb, flow->tsval);
		q->stats.ts_regressions += m->data && (s32)(flow->tsval - m->tsval) > TCP_PAWS_WINDOW;
		return;
	}
	flow->tsval = m->tsval;
	flow->has_tsval = true;
}

static struct sk_buff *rapid_dequeue(struct Qdisc *sch)
{
	struct rapid *q = qdisc_priv(sch);
	struct rapid_flow *queue, *flow;
	u64 now = ktime_get_ns();
	unsigned long bps = READ_ONCE(rate);
	struct sk_buff *skb;

	queue = turn(q, now);
	if (!queue)
		return NULL;
	skb = __qdisc_dequeue_head(&queue->again);
	if (skb)
		q->stats.jumped += queue->fresh.qlen > 0;
	else
		skb = __qdisc_dequeue_head(&queue->fresh);
	look_at_tsval(q, skb);

	queue->deficit -= qdisc_pkt_len(skb);
	if (!queue->fresh.qlen && !queue->again.qlen) {
		queue->deficit = 0;
		list_del_init(&queue->list);
	}
	flow = mark(skb)->flow;
	if (!--flow->waiting)
		list_add_tail(&flow->list, &q->idle);
	if (bps) {
		u64 takes = div64_ul(8ULL * NSEC_PER_SEC * qdisc_pkt_len(skb), bps);

		/* A timer that was late costs the line nothing. */
		q->free_at = (now - q->free_at < takes ? q->free_at : now) + takes;
	}
	qdisc_qstats_backlog_dec(sch, skb);
	sch->q.qlen--;
	qdisc_bstats_update(sch, skb);
	return skb;
}

static void purge(struct rapid_flow *queue)
{
	struct sk_buff *skb;

	while ((skb = __qdisc_dequeue_head(&queue->again)) || (skb = __qdisc_dequeue_head(&queue->fresh)))
		rtnl_kfree_skbs(skb, skb);
	list_del_init(&queue->list);
}

static void rapid_reset(struct Qdisc *sch)
{
	struct rapid *q = qdisc_priv(sch);
	struct hlist_node *next;
	struct rapid_flow *flow;
	int i;

	purge(&q->shared);
	for (i = 0; i < BUCKETS; i++)
		hlist_for_each_entry_safe(flow, next, &q->buckets[i], node) {
			purge(flow);
			forget(q, flow);
		}
	q->free_at = 0;
}

static void rapid_destroy(struct Qdisc *sch)
{
	struct rapid *q = qdisc_priv(sch);

	qdisc_watchdog_cancel(&q->watchdog);
	rapid_reset(sch);
}

static int rapid_init(struct Qdisc *sch, struct nlattr *options, struct netlink_ext_ack *extack)
{
	struct rapid *q = qdisc_priv(sch);

	qdisc_watchdog_init(&q->watchdog, sch);
	INIT_LIST_HEAD(&q->active);
	INIT_LIST_HEAD(&q->idle);
	INIT_LIST_HEAD(&q->shared.list);
	q->seed = get_random_u32();
	return 0;
}

static int rapid_dump_stats(struct Qdisc *sch, struct gnet_dump *dump)
{
	struct rapid *q = qdisc_priv(sch);
	struct rapid_xstats stats;

	sch_tree_lock(sch);
	stats = q->stats;
	sch_tree_unlock(sch);
	return gnet_stats_copy_app(dump, &stats, sizeof(stats));
}

static struct Qdisc_ops rapid_ops __read_mostly = {
	.id = "rapid",
	.priv_size = sizeof(struct rapid),
	.enqueue = rapid_enqueue,
	.dequeue = rapid_dequeue,
	.peek = qdisc_peek_dequeued,
	.init = rapid_init,
	.reset = rapid_reset,
	.destroy = rapid_destroy,
	.dump_stats = rapid_dump_stats,
	.owner = THIS_MODULE,
};

static int __init rapid_register(void)
{
	return register_qdisc(&rapid_ops);
}

static void __exit rapid_unregister(void)
{
	unregister_qdisc(&rapid_ops);
}

module_init(rapid_register);
module_exit(rapid_unregister);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("The sender's queue of TCP Rapid");
MODULE_ALIAS("sch_rapid");
MODULE_ALIAS("net-sch-rapid");
