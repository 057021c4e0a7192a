// SPDX-License-Identifier: GPL-2.0
/* The available bandwidth, of how a p-stream's gaps have changed on the way. */
#include "rapid.h"

#define NS 1000000000ULL
#define FRACTION 8	/* bits of a smoothed byte */

static u32 mean(const u32 *x, u32 from, u32 to)
{
	u64 sum = 0;
	u32 i;

	for (i = from; i < to; i++)
		sum += x[i];
	return (u32)div64_u64(sum, to - from);
}

static void fill(u32 *x, u32 from, u32 to, u32 value)
{
	for (; from < to; from++)
		x[from] = value;
}

static bool spike_at(const struct rapid_samples *of, u32 i, u32 spike_ns)
{
	return (u64)of->received_ns[i] > (u64)of->received_ns[i - 1] + spike_ns;
}

/* A packet that was held up, by an interrupt or behind other traffic, has a long gap before it and short ones after it. Their
 * mean is what they would have been: as far as the delay has been made up for, or to the next such packet.
 */
static void level_spikes(struct rapid_samples *of, u32 spike_ns)
{
	u32 i, to;
	s64 late;

	for (i = 1; i < of->n; i = to) {
		to = i + 1;
		if (!spike_at(of, i, spike_ns))
			continue;
		late = (s64)of->received_ns[i] - of->sent_ns[i];
		while (late > 0 && to < of->n && (to == i + 1 || !spike_at(of, to, spike_ns))) {
			late += (s64)of->received_ns[to] - of->sent_ns[to];
			to++;
		}
		if (late > 0 && to == of->n)
			return;
		fill(of->sent_ns, i, to, mean(of->sent_ns, i, to));
		fill(of->received_ns, i, to, mean(of->received_ns, i, to));
		fill(of->bytes, i, to, mean(of->bytes, i, to));
	}
}

static void smooth(u32 *x, u32 n, u32 alpha_shift)
{
	u32 i;

	for (i = 1; i < n; i++)
		x[i] = (u32)(x[i - 1] + (((s64)x[i] - x[i - 1]) >> alpha_shift));
}

static void slide(u32 *x, u32 n)
{
	u32 i;

	/* From the end: what is replaced is not looked at again. */
	for (i = n; i-- > 0;)
		x[i] = mean(x, i + 1 > RAPID_MEAN_OF ? i + 1 - RAPID_MEAN_OF : 0, i + 1);
}

static u64 rate_of(const struct rapid_samples *of, u32 i)
{
	return div64_u64((of->bytes[i] * NS) >> FRACTION, max(of->sent_ns[i], 1u));
}

static bool grows(const struct rapid_samples *of, u32 i, u32 epsilon_ns)
{
	return (u64)of->received_ns[i] > (u64)of->sent_ns[i] + epsilon_ns;
}

/* The samples are smoothed in place; there must be one at least. A probed rate is that of smoothed gaps: in a queue that never
 * empties, received gaps are all alike, and the rate at which smoothed sent ones equal them is the available one.
 */
struct rapid_found rapid_estimate(const struct rapid_estimator *how, struct rapid_samples *of)
{
	/* Of a short p-stream a quarter is as much. */
	u32 least = max(min(how->excursion, of->n / 4), 1u);
	struct rapid_found found;
	u32 *vectors[] = { of->sent_ns, of->received_ns, of->bytes };
	u32 i, run = 0;

	for (i = 0; i < of->n; i++)
		of->bytes[i] <<= FRACTION;
	if (how->denoise == RAPID_SPIKE_EWMA)
		level_spikes(of, how->spike_ns);
	if (how->floor)
		for (i = 0; i < of->n; i++)
			of->received_ns[i] = max(of->received_ns[i], of->sent_ns[i] - of->sent_ns[i] / 8);
	for (i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		if (how->denoise == RAPID_MEAN)
			slide(vectors[i], of->n);
		else if (how->denoise != RAPID_RAW)
			smooth(vectors[i], of->n, how->alpha_shift);
	}

	found.excursion = of->n;
	for (i = 0; i < of->n && found.excursion == of->n; i++) {
		run = grows(of, i, how->epsilon_ns) ? run + 1 : 0;
		if (how->rule == RAPID_OLD ? run >= least : i + 1 == of->n && run >= least)
			found.excursion = i + 1 - run;
	}
	i = found.excursion;
	found.available = rate_of(of, i ? i - 1 : 0);
	return found;
}
