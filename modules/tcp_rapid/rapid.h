/* SPDX-License-Identifier: GPL-2.0 */
/* What RAPID computes: rates, gaps and estimates of integers alone, in the kernel and in tests of user space alike. Rates are
 * bytes of payload per second, times are nanoseconds where nothing else is said.
 */
#ifndef RAPID_H
#define RAPID_H

#ifdef __KERNEL__
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/types.h>
#else
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;
typedef int64_t s64;
static inline u64 div64_u64(u64 dividend, u64 divisor)
{
	return dividend / divisor;
}
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#endif

#define RAPID_MAX_PACKETS 1024	/* of a p-stream */
#define RAPID_ONE 1024		/* unit of the spread factor and of the lowest and highest rate of a p-stream */

/* Which p-stream is sent. */
struct rapid_plan {
	u32 packets;
	u32 levels;	/* different rates; each is kept for packets / levels packets */
	u32 spread;	/* of neighbouring rates, in 1 / RAPID_ONE, at least RAPID_ONE */
};

enum rapid_denoise {
	RAPID_RAW,
	RAPID_MEAN,		/* sliding mean of RAPID_MEAN_OF */
	RAPID_EWMA,
	RAPID_SPIKE_EWMA,	/* means from spike to spike, then EWMA */
};

#define RAPID_MEAN_OF 8

enum rapid_rule {
	RAPID_OLD,	/* any excursion counts */
	RAPID_NEW,	/* only one that lasts to the end of the p-stream */
};

struct rapid_estimator {
	u32 rule;
	u32 denoise;
	u32 excursion;		/* fewest samples of an excursion */
	u32 epsilon_ns;		/* by which a gap has to grow */
	u32 spike_ns;		/* by which a gap has to exceed the one before it to be a spike */
	u32 alpha_shift;	/* the EWMA's alpha is 1 - 2^-alpha_shift */
	u32 floor;		/* whether received gaps count as 7/8 of the sent ones at least */
};

/* Samples of a p-stream, in the order in which they were sent: what lies between an acknowledged segment and the next. */
struct rapid_samples {
	u32 n;
	u32 *sent_ns;
	u32 *received_ns;
	u32 *bytes;
};

/* What was found. Without an excursion the available bandwidth is at least that, the highest rate probed. */
struct rapid_found {
	u64 available;
	u32 excursion;	/* the sample with which it begins, or n without one */
};

u32 rapid_gaps(const struct rapid_plan *plan, u64 rate, u32 segment, u32 *gap_ns);
struct rapid_plan rapid_short(const struct rapid_plan *whole, u32 packets);
u64 rapid_update(u64 rate, u64 available, u64 duration_ns, u64 tau_ns, u32 eta);
struct rapid_found rapid_estimate(const struct rapid_estimator *how, struct rapid_samples *samples);

#endif
