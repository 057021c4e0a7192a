// SPDX-License-Identifier: GPL-2.0
/* Broken on purpose: Reno whose window falls by a hundredth after a loss. Tests evaluate it. */
#include <linux/module.h>
#include <net/tcp.h>

static u32 gentle_ssthresh(struct sock *sk)
{
	return max(tcp_snd_cwnd(tcp_sk(sk)) * 99 / 100, 2U);
}

static struct tcp_congestion_ops gentle __read_mostly = {
	.ssthresh = gentle_ssthresh,
	.cong_avoid = tcp_reno_cong_avoid,
	.undo_cwnd = tcp_reno_undo_cwnd,
	.owner = THIS_MODULE,
	.name = "gentle",
};

static int __init gentle_register(void)
{
	return tcp_register_congestion_control(&gentle);
}

static void __exit gentle_unregister(void)
{
	tcp_unregister_congestion_control(&gentle);
}

module_init(gentle_register);
module_exit(gentle_unregister);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Reno that reduces its window by 1 %");
