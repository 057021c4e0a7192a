// SPDX-License-Identifier: GPL-2.0
/* Broken on purpose: it measures its rate as BBR does, and sends ten times as fast. Tests evaluate it. */
#include <linux/module.h>
#include <net/tcp.h>

#define FACTOR 10

/* The highest rate of delivery of the last rounds, in bytes per second; it forgets an eighth each round. */
struct overpaced_state {
	u64 rate;
	u32 next_round;
};

static void overpaced_main(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	struct overpaced_state *state = inet_csk_ca(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	u32 rtt_us = max(tcp_min_rtt(tp), 1U);
	u64 rate, window;

	if (rs->delivered <= 0 || rs->interval_us <= 0)
		return;
	if (!before(rs->prior_delivered, state->next_round)) {
		state->next_round = tp->delivered;
		state->rate -= state->rate / 8;
	}
	rate = div64_long((u64)rs->delivered * tp->mss_cache * USEC_PER_SEC, rs->interval_us);
	state->rate = max(state->rate, rate);
	WRITE_ONCE(sk->sk_pacing_rate, min_t(u64, FACTOR * state->rate, READ_ONCE(sk->sk_max_pacing_rate)));
	window = div_u64(state->rate * rtt_us, USEC_PER_SEC);
	window = FACTOR * div_u64(window, tp->mss_cache) + TCP_INIT_CWND;
	tcp_snd_cwnd_set(tp, min_t(u64, window, tp->snd_cwnd_clamp));
}

static void overpaced_init(struct sock *sk)
{
	struct overpaced_state *state = inet_csk_ca(sk);

	state->rate = 0;
	state->next_round = 0;
	cmpxchg(&sk->sk_pacing_status, SK_PACING_NONE, SK_PACING_NEEDED);
}

static u32 overpaced_ssthresh(struct sock *sk)
{
	return tcp_sk(sk)->snd_ssthresh;
}

static struct tcp_congestion_ops overpaced __read_mostly = {
	.ssthresh = overpaced_ssthresh,
	.init = overpaced_init,
	.cong_control = overpaced_main,
	.undo_cwnd = tcp_reno_undo_cwnd,
	.owner = THIS_MODULE,
	.name = "overpaced",
};

static int __init overpaced_register(void)
{
	return tcp_register_congestion_control(&overpaced);
}

static void __exit overpaced_unregister(void)
{
	tcp_unregister_congestion_control(&overpaced);
}

module_init(overpaced_register);
module_exit(overpaced_unregister);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Ten times the rate that is delivered");
