/* SPDX-License-Identifier: GPL-2.0 */
/* How a congestion window comes down after a loss: the rules, as functions of integers. They compile in the kernel and in
 * user space, where tests compare them with the texts that define them.
 */
#ifndef REDUCTION_H
#define REDUCTION_H

#ifdef __KERNEL__
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/types.h>
#else
#include <stdbool.h>
#include <stdint.h>

typedef int32_t s32;
typedef uint32_t u32;
typedef uint64_t u64;

#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define div_u64(dividend, divisor) ((dividend) / (divisor))
#endif

enum reduction_rule {
	REDUCTION_PRR,	/* proportional rate reduction, RFC 9937 */
	REDUCTION_3517,	/* to ssthresh at once, RFC 3517 and RFC 6675 */
	REDUCTION_RH,	/* rate halving, Linux up to 3.1 */
	REDUCTION_SSRB,	/* proportional rate reduction of Linux 3.2: the slow-start bound of RFC 6937 for every ACK */
};

/* What is known when an ACK has been processed, in packets. */
struct reduction {
	u32 cwnd;
	u32 ssthresh;
	u32 pipe;
	u32 prior_cwnd;		/* at the begin of the reduction; not 0 */
	u32 prr_delivered;	/* since then, with this ACK */
	u32 prr_out;		/* sent since then */
	u32 delivered;		/* by this ACK */
	u32 min_cwnd;		/* below which rate halving does not count down */
	bool second_ack;	/* it counts down with every second one */
	bool safe_ack;		/* SND.UNA has advanced, and nothing more was found lost: SafeACK of RFC 9937 */
};

static inline u32 reduction_proportional(const struct reduction *r, bool safe_ack)
{
	s32 room = r->ssthresh - r->pipe;
	s32 send, forced = r->prr_out == 0;

	if (room < 0) {
		u64 due = (u64)r->ssthresh * r->prr_delivered + r->prior_cwnd - 1;

		send = (s32)div_u64(due, r->prior_cwnd) - (s32)r->prr_out;
	} else {
		send = max((s32)(r->prr_delivered - r->prr_out), (s32)r->delivered) + safe_ack;
		send = min(send, room);
	}
	/* The first retransmission never waits. */
	return r->pipe + max(send, forced);
}

/* The window that a rule has after an ACK that delivered something. */
static inline u32 reduction_cwnd(enum reduction_rule rule, const struct reduction *r)
{
	u32 cwnd = r->cwnd;

	switch (rule) {
	case REDUCTION_3517:
		return max(r->ssthresh, r->prr_out ? 0 : r->pipe + 1);
	case REDUCTION_RH:
		if (r->second_ack && cwnd > r->min_cwnd)
			cwnd--;
		return min(cwnd, r->pipe + 1);
	case REDUCTION_SSRB:
		return reduction_proportional(r, true);
	case REDUCTION_PRR:
	default:
		return reduction_proportional(r, r->safe_ack);
	}
}

/* The window at the end of the reduction. */
static inline u32 reduction_end(enum reduction_rule rule, u32 cwnd, u32 ssthresh)
{
	return rule == REDUCTION_RH ? min(cwnd, ssthresh) : ssthresh;
}

#endif
