// SPDX-License-Identifier: GPL-2.0
/* A congestion control that holds one window: the least that the kernel takes as a module of that kind. */
#include <linux/module.h>
#include <net/tcp.h>

static unsigned int window = 10;
module_param(window, uint, 0644);
MODULE_PARM_DESC(window, "congestion window, in segments");

static unsigned int scale = 1;
module_param(scale, uint, 0444);
MODULE_PARM_DESC(scale, "factor of the window, for the life of the module");

static u32 constant_ssthresh(struct sock *sk)
{
	return window * scale;
}

static void constant_cong_avoid(struct sock *sk, u32 ack, u32 acked)
{
	tcp_snd_cwnd_set(tcp_sk(sk), window * scale);
}

static struct tcp_congestion_ops constant __read_mostly = {
	.ssthresh = constant_ssthresh,
	.cong_avoid = constant_cong_avoid,
	.undo_cwnd = tcp_reno_undo_cwnd,
	.owner = THIS_MODULE,
	.name = "constant",
};

static int __init constant_register(void)
{
	return tcp_register_congestion_control(&constant);
}

static void __exit constant_unregister(void)
{
	tcp_unregister_congestion_control(&constant);
}

module_init(constant_register);
module_exit(constant_unregister);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("TCP with a constant congestion window");
