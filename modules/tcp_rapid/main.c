// SPDX-License-Identifier: GPL-2.0
/* TCP Rapid: sends all data in p-streams, groups of packets at rising rates whose mean is the connection's rate, and takes the
 * available bandwidth of how the path changes their gaps. See README.md.
 *
 * Gaps are those of TCP's internal pacing: one packet leaves at a time, and before it does min_tso_segs is called, which sets
 * the rate that makes the gap after it. Received gaps are those of the receiver's timestamps in the ACKs.
 *
 * What is computed is in plan.c and estimate.c. All hooks of tcp_congestion_ops stay in this file: they share its static state.
 */
#include <linux/inet_diag.h>
#include <linux/module.h>
#include <linux/version.h>
#include <net/tcp.h>
#include "rapid.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

#define RAPID_STREAMS 256	/* not yet acknowledged */
#define RAPID_UNPACED 10	/* data segments that TCP sends unpaced: tcp_update_skb_after_send() */
#define RAPID_FIRST 2		/* packets of slow start's first p-stream */

/* A parameter of which values that mean nothing are refused. */
#define RAPID_PARAM(name, value, least, most, what)						\
	static unsigned int name = value;							\
	static int name##_set(const char *text, const struct kernel_param *parameter)		\
	{											\
		return param_set_uint_minmax(text, parameter, least, most);			\
	}											\
	static const struct kernel_param_ops name##_ops = { .set = name##_set, .get = param_get_uint };	\
	module_param_cb(name, &name##_ops, &name, 0644);					\
	__MODULE_PARM_TYPE(name, "uint");							\
	MODULE_PARM_DESC(name, what)

RAPID_PARAM(packets, 64, 2, RAPID_MAX_PACKETS, "N, packets of a p-stream");
RAPID_PARAM(levels, 16, 1, RAPID_MAX_PACKETS, "L, different rates in a p-stream");
RAPID_PARAM(spread_permille, 1070, 1000, 16000, "s, ratio of neighbouring rates in 1/1000");
RAPID_PARAM(tau_ms, 200, 0, UINT_MAX, "tau, time constant with which the rate rises");
RAPID_PARAM(eta, 3, 1, UINT_MAX, "the rate falls by 1/eta of what it is above the estimate");
RAPID_PARAM(epsilon_ns, 1000, 0, UINT_MAX, "by how much a gap has to grow");
RAPID_PARAM(spike_us, 30, 0, USEC_PER_SEC, "by how much a received gap has to exceed the one before it to be a spike");
RAPID_PARAM(alpha_shift, 3, 0, 31, "alpha of the EWMA is 1 - 2^-alpha_shift");
RAPID_PARAM(excursion, 4, 1, RAPID_MAX_PACKETS, "E, fewest grown gaps of an excursion");
RAPID_PARAM(estimator, RAPID_NEW, RAPID_OLD, RAPID_NEW,
	    "which excursion counts: 0 any, 1 one that lasts to the end of the p-stream");
RAPID_PARAM(denoise, RAPID_SPIKE_EWMA, RAPID_RAW, RAPID_SPIKE_EWMA,
	    "0 none, 1 mean of 8, 2 EWMA, 3 means between spikes, then EWMA");
RAPID_PARAM(gap_floor, 0, 0, 1, "1: received gaps count as 7/8 of the sent ones at least");
RAPID_PARAM(loss_policy, 0, 0, 2, "in recovery: 0 no p-streams, 1 no p-streams and half the rate, 2 p-streams go on");
RAPID_PARAM(min_kbit, 1000, 8, UINT_MAX, "lowest rate, in kbit/s of payload");

enum rapid_verdict {
	RAPID_ESTIMATED,
	RAPID_LOST,	/* less than 3/4 of it can be compared */
	RAPID_SLOW,	/* sent at less than half its rate: there was no data, or no window */
	RAPID_CLOCK,	/* the receiver's timestamps are no microseconds */
	RAPID_BURSTS,	/* many packets were sent with the gap of one, as where the qdisc fq paces */
};

/* A p-stream on its way: sequence numbers before its first and after its last byte, how it was planned. */
struct rapid_stream {
	u32 start, end;
	u32 id;
	u32 segment;
	u64 rate;
	struct rapid_plan plan;
	bool complete;	/* all of it is sent: end is known */
	bool broken;
	bool bursts;
};

struct rapid_state {
	u64 rate;		/* R_avg */

	/* Of the packet that is next. Its gap is planned once, however often TCP asks. */
	u32 planned_seq;
	bool planned;
	u32 gap_ns;

	/* Of the p-stream that is sent. */
	bool sending;
	u32 packet;
	u32 next_id;

	bool slow_start;
	u32 short_packets;	/* of slow start's next p-stream */
	u16 gso_max_segs;	/* to be given back */

	/* Of the segment that was delivered last. */
	bool seen;
	u32 seen_seq, seen_sent_us, seen_received;

	/* Of the oldest p-stream. */
	u64 sent_ns, received_ns, bytes;
	u32 n;

	u32 head, tail;		/* of streams, oldest and next */
	struct rapid_stream streams[RAPID_STREAMS];

	u32 max_packets;
	u32 vectors[];		/* gaps, sent_ns, received_ns, bytes: max_packets each */
};

struct rapid {
	struct rapid_state *state;	/* NULL: no memory for it */
	/* For rapid_get_info(), which comes without the socket's lock: the state may be freed meanwhile. */
	u64 told_rate, told_available;
};

static struct rapid_state *rapid_state(const struct sock *sk)
{
	return ((struct rapid *)inet_csk_ca(sk))->state;
}

static u32 *vector(struct rapid_state *st, u32 which)
{
	return st->vectors + which * st->max_packets;
}

static struct rapid_stream *stream_of(struct rapid_state *st, u32 which)
{
	return &st->streams[which % RAPID_STREAMS];
}

static bool in_recovery(u8 ca_state)
{
	return ca_state == TCP_CA_Recovery || ca_state == TCP_CA_Loss;
}

/* Never 0, even if SO_MAX_PACING_RATE is. */
static u64 clamp_rate(const struct sock *sk, u64 rate)
{
	u64 lowest = (u64)READ_ONCE(min_kbit) * 1000 / BITS_PER_BYTE;
	u64 highest = max(READ_ONCE(sk->sk_max_pacing_rate), 1UL);

	return min(max(rate, lowest), highest);
}

static struct rapid_plan asked_plan(const struct rapid_state *st)
{
	struct rapid_plan plan = {
		.packets = min(READ_ONCE(packets), st->max_packets),
		.levels = READ_ONCE(levels),
		.spread = READ_ONCE(spread_permille) * RAPID_ONE / 1000,
	};

	plan.levels = min(plan.levels, plan.packets);
	return plan;
}

/* --- sending ------------------------------------------------------------------------------------ */

static void end_stream(struct rapid_state *st, u32 end)
{
	struct rapid_stream *last = stream_of(st, st->tail - 1);

	if (!st->sending)
		return;
	last->end = end;
	last->complete = true;
	st->sending = false;
}

static void begin_stream(struct sock *sk, struct rapid_state *st)
{
	struct rapid_plan whole = asked_plan(st);
	struct rapid_stream *stream = stream_of(st, st->tail++);

	*stream = (struct rapid_stream) {
		.start = tcp_sk(sk)->snd_nxt,
		.id = st->next_id++,
		.segment = tcp_sk(sk)->mss_cache,
		.rate = st->rate,
		.plan = whole,
	};
	if (st->slow_start && st->short_packets < whole.packets) {
		stream->plan = rapid_short(&whole, st->short_packets);
		st->short_packets *= 2;
	}
	rapid_gaps(&stream->plan, st->rate, stream->segment, vector(st, 0));
	st->sending = true;
	st->packet = 0;
}

static void plan_packet(struct sock *sk, struct rapid_state *st)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	if (st->sending && st->planned && after(tp->snd_nxt, st->planned_seq + tp->mss_cache))
		stream_of(st, st->tail - 1)->bursts = true;
	st->planned_seq = tp->snd_nxt;
	st->planned = true;
	if (st->sending && st->packet == stream_of(st, st->tail - 1)->plan.packets)
		end_stream(st, tp->snd_nxt);
	if (!st->sending && tp->data_segs_out >= RAPID_UNPACED && st->tail - st->head < RAPID_STREAMS &&
	    !(in_recovery(inet_csk(sk)->icsk_ca_state) && READ_ONCE(loss_policy) != 2))
		begin_stream(sk, st);
	if (st->sending)
		st->gap_ns = vector(st, 0)[st->packet++];
	else
		st->gap_ns = (u32)min(div64_u64((u64)tp->mss_cache * NSEC_PER_SEC, st->rate), (u64)U32_MAX);
	st->gap_ns = max(st->gap_ns, 1U);
}

static u32 rapid_min_tso_segs(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	struct rapid_state *st = rapid_state(sk);
	u64 rate;

	if (!st)
		return 2;
	sk->sk_gso_max_segs = 1;
	if (!st->planned || tp->snd_nxt != st->planned_seq)
		plan_packet(sk, st);
	rate = div_u64((u64)tp->mss_cache * NSEC_PER_SEC, st->gap_ns);
	WRITE_ONCE(sk->sk_pacing_rate, min_t(u64, rate, READ_ONCE(sk->sk_max_pacing_rate)));
	return 1;
}

/* --- acknowledgements --------------------------------------------------------------------------- */

static void set_cwnd(struct sock *sk, const struct rapid_state *st)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u64 in_flight = div_u64(st->rate * (tp->srtt_us >> 3), USEC_PER_SEC);

	/* The rate is what limits the connection. */
	in_flight = div_u64(2 * in_flight, tp->mss_cache) + 1;
	tcp_snd_cwnd_set(tp, (u32)clamp_t(u64, in_flight, 4 * asked_plan(st).packets, tp->snd_cwnd_clamp));
}

static enum rapid_verdict judge(const struct rapid_state *st, const struct rapid_stream *of)
{
	u64 planned_ns = div64_u64((u64)of->plan.packets * of->segment * NSEC_PER_SEC, of->rate);

	if (of->bursts)
		return RAPID_BURSTS;
	if (of->broken || !st->n || st->bytes * 4 < (u64)(of->end - of->start) * 3)
		return RAPID_LOST;
	if (st->received_ns < st->sent_ns / 8)
		return RAPID_CLOCK;
	if (st->sent_ns > 2 * planned_ns)
		return RAPID_SLOW;
	return RAPID_ESTIMATED;
}

static void take_estimate(struct sock *sk, struct rapid_state *st, const struct rapid_stream *of, struct rapid_found found)
{
	struct rapid *ca = inet_csk_ca(sk);

	if (!st->slow_start) {
		st->rate = rapid_update(st->rate, found.available, st->sent_ns, (u64)READ_ONCE(tau_ms) * NSEC_PER_MSEC,
					READ_ONCE(eta));
	} else {
		st->rate = found.available;
		st->slow_start = found.excursion == st->n && of->plan.packets < asked_plan(st).packets;
	}
	st->rate = clamp_rate(sk, st->rate);
	WRITE_ONCE(ca->told_rate, st->rate);
	WRITE_ONCE(ca->told_available, found.available);
}

/* The oldest p-stream is acknowledged wholly. */
static void end_samples(struct sock *sk, struct rapid_state *st)
{
	const struct rapid_stream *of = stream_of(st, st->head++);
	enum rapid_verdict verdict = judge(st, of);
	bool slow_start = st->slow_start;
	struct rapid_found found = {};

	if (verdict == RAPID_ESTIMATED) {
		const struct rapid_estimator how = {
			.rule = READ_ONCE(estimator),
			.denoise = READ_ONCE(denoise),
			.excursion = READ_ONCE(excursion),
			.epsilon_ns = READ_ONCE(epsilon_ns),
			.spike_ns = READ_ONCE(spike_us) * NSEC_PER_USEC,
			.alpha_shift = READ_ONCE(alpha_shift),
			.floor = READ_ONCE(gap_floor),
		};
		struct rapid_samples samples = { st->n, vector(st, 1), vector(st, 2), vector(st, 3) };

		found = rapid_estimate(&how, &samples);
		take_estimate(sk, st, of, found);
	}
	if (trace_pstream_enabled()) {
		u32 *gaps = vector(st, 1);

		rapid_gaps(&of->plan, of->rate, of->segment, gaps);
		trace_pstream(sk, of->id, of->plan.packets, st->n, verdict, slow_start, found.excursion,
			      div_u64((u64)of->segment * NSEC_PER_SEC, max(gaps[0], 1U)),
			      div_u64((u64)of->segment * NSEC_PER_SEC, max(gaps[of->plan.packets - 1], 1U)), found.available,
			      st->rate, st->sent_ns);
	}
	st->n = 0;
	st->sent_ns = st->received_ns = st->bytes = 0;
}

/* The gap after the last packet of a p-stream ends with the first one of the next. */
static bool is_past(const struct rapid_stream *stream, u32 seq)
{
	return stream->complete && after(seq, stream->end);
}

static void trace_gap(struct sock *sk, struct rapid_state *st, const struct rapid_stream *of, u32 seq, u32 bytes, u32 sent_ns,
		      u32 received_ns)
{
	u32 packet = (seq - of->start - 1) / of->segment;
	u32 *gaps;

	if (!trace_sample_enabled() || packet >= of->plan.packets)
		return;
	gaps = kmalloc_array(of->plan.packets, sizeof(*gaps), GFP_ATOMIC);
	if (!gaps)
		return;
	rapid_gaps(&of->plan, of->rate, of->segment, gaps);
	trace_sample(sk, of->id, packet, bytes, gaps[packet], sent_ns, received_ns);
	kfree(gaps);
}

/* What lies between the segment that was delivered before, and this one. */
static void take_sample(struct sock *sk, struct rapid_state *st, u32 seq, u32 sent_us, u32 received)
{
	u32 from = st->seen_seq, bytes = seq - from;
	u64 sent_ns = (u64)sent_us * NSEC_PER_USEC, received_ns = (u64)received * NSEC_PER_USEC;
	struct rapid_stream *of;

	while (st->head != st->tail && is_past(stream_of(st, st->head), from))
		end_samples(sk, st);
	if (st->head == st->tail)
		return;
	of = stream_of(st, st->head);
	if (!after(from, of->start))
		return;
	/* An ACK may be of two segments, of which the last one is known. */
	if (bytes <= 2 * of->segment && !(of->complete && after(seq, of->end + of->segment)) && st->n < st->max_packets &&
	    sent_ns <= U32_MAX && received_ns <= U32_MAX) {
		vector(st, 1)[st->n] = (u32)sent_ns;
		vector(st, 2)[st->n] = (u32)received_ns;
		vector(st, 3)[st->n] = bytes;
		st->n++;
		st->sent_ns += sent_ns;
		st->received_ns += received_ns;
		st->bytes += bytes;
		trace_gap(sk, st, of, from, bytes, (u32)sent_ns, (u32)received_ns);
	}
	if (is_past(of, seq))
		end_samples(sk, st);
}

static void on_ack(struct sock *sk, const struct rate_sample *rs)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct rapid_state *st = rapid_state(sk);
	u32 sent_us = (u32)tp->first_tx_mstamp, received = tp->rx_opt.rcv_tsval;

	if (!st) {
		/* As Reno, but for its proportional reduction. */
		if (!in_recovery(inet_csk(sk)->icsk_ca_state))
			tcp_reno_cong_avoid(sk, tp->snd_una, rs->acked_sacked);
		return;
	}
	/* Of the segment that was sent last of those that this ACK tells of. Without timestamps all are received at one time, of which
	 * p-streams end as RAPID_CLOCK.
	 */
	if (rs->delivered > 0 && !rs->is_retrans) {
		if (st->seen && after(rs->last_end_seq, st->seen_seq))
			take_sample(sk, st, rs->last_end_seq, sent_us - st->seen_sent_us, received - st->seen_received);
		if (!st->seen || after(rs->last_end_seq, st->seen_seq)) {
			st->seen_seq = rs->last_end_seq;
			st->seen_sent_us = sent_us;
			st->seen_received = received;
			st->seen = true;
		}
	}
	set_cwnd(sk, st);
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
static void rapid_cong_control(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
#else
static void rapid_cong_control(struct sock *sk, const struct rate_sample *rs)
#endif
{
	on_ack(sk, rs);
}

static void rapid_set_state(struct sock *sk, u8 ca_state)
{
	struct rapid_state *st = rapid_state(sk);
	u8 before = inet_csk(sk)->icsk_ca_state;
	u32 which;

	if (!st) {
		if (ca_state == TCP_CA_Recovery)
			tcp_snd_cwnd_set(tcp_sk(sk), max(tcp_sk(sk)->snd_ssthresh, 2U));
		return;
	}
	if (ca_state == TCP_CA_Loss) {
		st->slow_start = true;
		st->short_packets = RAPID_FIRST;
	}
	if (READ_ONCE(loss_policy) == 2 || in_recovery(before) == in_recovery(ca_state))
		return;
	st->planned = false;
	if (!in_recovery(ca_state))
		return;
	end_stream(st, tcp_sk(sk)->snd_nxt);
	for (which = st->head; which != st->tail; which++)
		stream_of(st, which)->broken = true;
	if (READ_ONCE(loss_policy) == 1)
		st->rate = clamp_rate(sk, st->rate / 2);
}

/* --- the rest ----------------------------------------------------------------------------------- */

static void rapid_init(struct sock *sk)
{
	struct rapid *ca = inet_csk_ca(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	u32 max_packets = READ_ONCE(packets);
	struct rapid_state *st;

	ca->state = st = kzalloc(struct_size(st, vectors, 4 * max_packets), GFP_ATOMIC | __GFP_NOWARN);
	if (!st)
		return;
	st->max_packets = max_packets;
	st->slow_start = true;
	st->short_packets = RAPID_FIRST;
	st->gso_max_segs = sk->sk_gso_max_segs;
	st->rate = clamp_rate(sk, div_u64((u64)tcp_snd_cwnd(tp) * tp->mss_cache * USEC_PER_SEC,
					  max(tp->srtt_us >> 3, tp->srtt_us ? 1U : (u32)USEC_PER_MSEC)));
	tp->snd_ssthresh = TCP_INFINITE_SSTHRESH;
	set_cwnd(sk, st);
	cmpxchg(&sk->sk_pacing_status, SK_PACING_NONE, SK_PACING_NEEDED);
}

static void rapid_release(struct sock *sk)
{
	struct rapid *ca = inet_csk_ca(sk);

	if (ca->state)
		sk->sk_gso_max_segs = ca->state->gso_max_segs;
	kfree(ca->state);
	ca->state = NULL;
}

static u32 rapid_ssthresh(struct sock *sk)
{
	return rapid_state(sk) ? TCP_INFINITE_SSTHRESH : tcp_reno_ssthresh(sk);
}

static u32 rapid_undo_cwnd(struct sock *sk)
{
	return rapid_state(sk) ? tcp_snd_cwnd(tcp_sk(sk)) : tcp_reno_undo_cwnd(sk);
}

static u32 rapid_sndbuf_expand(struct sock *sk)
{
	return 3;
}

/* In the form of BBR's, which ss prints: bw is AB_est, pacing_gain R_avg / AB_est. */
static size_t rapid_get_info(struct sock *sk, u32 ext, int *attr, union tcp_cc_info *info)
{
	const struct rapid *ca = inet_csk_ca(sk);
	u64 available = READ_ONCE(ca->told_available), rate = READ_ONCE(ca->told_rate);

	if (!(ext & (1 << (INET_DIAG_BBRINFO - 1) | 1 << (INET_DIAG_VEGASINFO - 1))))
		return 0;
	info->bbr = (struct tcp_bbr_info) {
		.bbr_bw_lo = (u32)available,
		.bbr_bw_hi = (u32)(available >> 32),
		.bbr_min_rtt = tcp_min_rtt(tcp_sk(sk)),
		.bbr_pacing_gain = available ? (u32)min_t(u64, div64_u64(rate << 8, available), U32_MAX) : 0,
		.bbr_cwnd_gain = 2 << 8,
	};
	*attr = INET_DIAG_BBRINFO;
	return sizeof(info->bbr);
}

static struct tcp_congestion_ops rapid __read_mostly = {
	.flags = TCP_CONG_NON_RESTRICTED,
	.name = "rapid",
	.owner = THIS_MODULE,
	.init = rapid_init,
	.release = rapid_release,
	.min_tso_segs = rapid_min_tso_segs,
	.cong_control = rapid_cong_control,
	.set_state = rapid_set_state,
	.ssthresh = rapid_ssthresh,
	.undo_cwnd = rapid_undo_cwnd,
	.sndbuf_expand = rapid_sndbuf_expand,
	.get_info = rapid_get_info,
};

static int __init rapid_register(void)
{
	BUILD_BUG_ON(sizeof(struct rapid) > ICSK_CA_PRIV_SIZE);
	return tcp_register_congestion_control(&rapid);
}

static void __exit rapid_unregister(void)
{
	tcp_unregister_congestion_control(&rapid);
}

module_init(rapid_register);
module_exit(rapid_unregister);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("TCP Rapid: congestion control by estimates of the available bandwidth");
