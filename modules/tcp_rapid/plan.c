// SPDX-License-Identifier: GPL-2.0
/* The gaps of a p-stream, and what an estimate makes of the rate. */
#include "rapid.h"

#define NS 1000000000ULL
#define WEIGHT 24	/* bits of the fraction of a gap's weight */

/* Gaps after each packet of a p-stream, into gap_ns. Their sum is that of as many gaps at one rate, to a nanosecond for each
 * packet. Rates rise by the spread factor from level to level. Returns the number of levels.
 */
u32 rapid_gaps(const struct rapid_plan *plan, u64 rate, u32 segment, u32 *gap_ns)
{
	u32 levels = max(min(plan->levels, plan->packets), 1u);
	u64 whole = div64_u64((u64)plan->packets * segment * NS, max(rate, (u64)1));
	u64 weight = 1ULL << WEIGHT, sum = 0;
	u32 i, level = 0;

	/* A minute is more than any p-stream lasts, and what 64 bits hold when it is weighted. */
	whole = min(whole, 60 * NS);
	for (i = 0; i < plan->packets; i++) {
		for (; level < i * levels / plan->packets; level++)
			weight = max(div64_u64(weight * RAPID_ONE, plan->spread), (u64)1);
		gap_ns[i] = weight;
		sum += weight;
	}
	for (i = 0; i < plan->packets; i++)
		gap_ns[i] = min(div64_u64(whole * gap_ns[i], sum), (u64)(u32)-1);
	return levels;
}

/* A p-stream of fewer packets that probes up to about the rates of the whole one: slow start's. */
struct rapid_plan rapid_short(const struct rapid_plan *whole, u32 packets)
{
	u32 levels = max(min(whole->levels, packets), 1u);
	u32 every = levels > 1 ? (whole->levels - 1) / (levels - 1) : 0;
	struct rapid_plan plan = { packets, levels, RAPID_ONE };

	/* Never above 16, which is more than a path's rate rises from one p-stream to the next. */
	while (every-- && plan.spread < 16 * RAPID_ONE)
		plan.spread = (u32)div64_u64((u64)plan.spread * whole->spread, RAPID_ONE);
	return plan;
}

/* The rate after an estimate: towards a higher one with the time constant tau, whatever the RTT; towards a lower one by
 * 1 / eta of the difference.
 */
u64 rapid_update(u64 rate, u64 available, u64 duration_ns, u64 tau_ns, u32 eta)
{
	u64 part;

	if (available < rate)
		return rate - div64_u64(rate - available, max(eta, 1u));
	/* In 1/1024, so that nothing overflows. */
	part = duration_ns >= tau_ns ? RAPID_ONE : div64_u64(duration_ns * RAPID_ONE, tau_ns);
	return rate + (available - rate) * part / RAPID_ONE;
}
