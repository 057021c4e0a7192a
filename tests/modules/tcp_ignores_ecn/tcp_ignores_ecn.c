// SPDX-License-Identifier: GPL-2.0
/* Broken on purpose: Reno that does not answer marks. Tests evaluate it. */
#include <linux/module.h>
#include <net/tcp.h>

static u32 ignores_ecn_ssthresh(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	/* Without a segment that is missing, it is a mark. */
	if (!tp->sacked_out && !tp->lost_out)
		return max(tcp_snd_cwnd(tp), 2U);
	return tcp_reno_ssthresh(sk);
}

static struct tcp_congestion_ops ignores_ecn __read_mostly = {
	.ssthresh = ignores_ecn_ssthresh,
	.cong_avoid = tcp_reno_cong_avoid,
	.undo_cwnd = tcp_reno_undo_cwnd,
	.owner = THIS_MODULE,
	.name = "ignores_ecn",
};

static int __init ignores_ecn_register(void)
{
	return tcp_register_congestion_control(&ignores_ecn);
}

static void __exit ignores_ecn_unregister(void)
{
	tcp_unregister_congestion_control(&ignores_ecn);
}

module_init(ignores_ecn_register);
module_exit(ignores_ecn_unregister);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Reno that answers losses and no marks");
