// SPDX-License-Identifier: GPL-2.0
/* Broken on purpose: Reno whose window does not fall after a loss. Tests evaluate it. */
#include <linux/module.h>
#include <net/tcp.h>

static u32 keeps_window_ssthresh(struct sock *sk)
{
	return max(tcp_snd_cwnd(tcp_sk(sk)), 2U);
}

static struct tcp_congestion_ops keeps_window __read_mostly = {
	.ssthresh = keeps_window_ssthresh,
	.cong_avoid = tcp_reno_cong_avoid,
	.undo_cwnd = tcp_reno_undo_cwnd,
	.owner = THIS_MODULE,
	.name = "keeps_window",
};

static int __init keeps_window_register(void)
{
	return tcp_register_congestion_control(&keeps_window);
}

static void __exit keeps_window_unregister(void)
{
	tcp_unregister_congestion_control(&keeps_window);
}

module_init(keeps_window_register);
module_exit(keeps_window_unregister);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Reno that keeps its window after a loss");
