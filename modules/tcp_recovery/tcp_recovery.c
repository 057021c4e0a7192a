// SPDX-License-Identifier: GPL-2.0
/* Reno and CUBIC, each with a choice of how the window is reduced in Recovery and CWR: by proportional rate reduction, at once
 * (RFC 3517), by rate halving, or by the proportional rate reduction of Linux 3.2. All else is the parent's or the kernel's.
 *
 * A control with cong_control replaces tcp_cwnd_reduction() and tcp_end_cwnd_reduction(). What these go by is kept by the
 * kernel for such a control too: prior_cwnd, prr_out and the zero of prr_delivered and snd_cwnd_cnt when a reduction begins.
 * So no state of its own is needed, and the whole private area of a socket is the parent's.
 */
#include <linux/module.h>
#include <net/tcp.h>

#include "reduction.h"
#define CREATE_TRACE_POINTS
#include "events.h"

/* Of net/ipv4/tcp_input.c, where they are private. */
#define FLAG_DATA_ACKED		0x04
#define FLAG_SYN_ACKED		0x10
#define FLAG_DATA_SACKED	0x20
#define FLAG_SND_UNA_ADVANCED	0x400
#define FLAG_DSACKING_ACK	0x800
#define FLAG_FORWARD_PROGRESS	(FLAG_DATA_ACKED | FLAG_SYN_ACKED | FLAG_DATA_SACKED)

struct parent {
	const char *name;
	struct socket *user;	/* holds it, and tells its operations */
};

struct recovery {
	struct tcp_congestion_ops ops;	/* the parent's, but for those below */
	const struct tcp_congestion_ops *parent;
	enum reduction_rule rule;
};

static struct parent parents[] = { { .name = "reno" }, { .name = "cubic" } };

static const char *const rules[] = {
	[REDUCTION_PRR] = "prr",
	[REDUCTION_3517] = "3517",
	[REDUCTION_RH] = "rh",
	[REDUCTION_SSRB] = "ssrb",
};

static struct recovery controls[ARRAY_SIZE(parents)][ARRAY_SIZE(rules)] __read_mostly;

static const struct recovery *recovery_of(const struct sock *sk)
{
	return container_of(inet_csk(sk)->icsk_ca_ops, struct recovery, ops);
}

/* The window after an ACK, of which a reduction has seen so much. */
static u32 recovery_window(const struct sock *sk, u32 prr_delivered, u32 delivered, bool second_ack, bool safe_ack)
{
	const struct recovery *control = recovery_of(sk);
	const struct tcp_sock *tp = tcp_sk(sk);
	struct reduction r = {
		.cwnd = tcp_snd_cwnd(tp),
		.ssthresh = tp->snd_ssthresh,
		.pipe = tcp_packets_in_flight(tp),
		.prior_cwnd = tp->prior_cwnd,
		.prr_delivered = prr_delivered,
		.prr_out = tp->prr_out,
		.delivered = delivered,
		/* Linux up to 3.1 had it with the window of reno. */
		.min_cwnd = control->parent->ssthresh == tcp_reno_ssthresh ? tp->snd_ssthresh / 2 : tp->snd_ssthresh,
		.second_ack = second_ack,
		.safe_ack = safe_ack,
	};

	/* A control that has none (bbr) began the reduction. */
	if (r.ssthresh >= TCP_INFINITE_SSTHRESH && control->rule == REDUCTION_3517)
		r.ssthresh = r.cwnd;
	return reduction_cwnd(control->rule, &r);
}

/* As tcp_cwnd_reduction() */
static void recovery_reduce(struct sock *sk, int flag, const struct rate_sample *rs)
{
	bool halves = recovery_of(sk)->rule == REDUCTION_RH;
	struct tcp_sock *tp = tcp_sk(sk);
	int delivered = rs->acked_sacked;

	/* Sent before anything was delivered: the timer of RACK began the recovery, and counts for an ACK. */
	if (inet_csk(sk)->icsk_ca_state == TCP_CA_Recovery && !tp->prr_delivered && tp->prr_out) {
		tp->prr_delivered = 1;
		tp->snd_cwnd_cnt = halves;
	}
	/* Rate halving counts ACKs that deliver nothing too, if they tell something. */
	if (delivered <= 0 && !(halves && flag & (FLAG_SND_UNA_ADVANCED | FLAG_DSACKING_ACK)))
		return;
	if (WARN_ON_ONCE(!tp->prior_cwnd))
		return;

	tp->prr_delivered += max(delivered, 0);
	if (halves)
		tp->snd_cwnd_cnt = !tp->snd_cwnd_cnt;
	tcp_snd_cwnd_set(tp, recovery_window(sk, tp->prr_delivered, delivered, !tp->snd_cwnd_cnt,
					     flag & FLAG_SND_UNA_ADVANCED && !rs->losses));
}

/* As tcp_may_raise_cwnd() */
static bool recovery_may_raise(const struct sock *sk, int flag)
{
	if (tcp_sk(sk)->reordering > READ_ONCE(sock_net(sk)->ipv4.sysctl_tcp_reordering))
		return flag & FLAG_FORWARD_PROGRESS;
	return flag & FLAG_DATA_ACKED;
}

/* As tcp_update_pacing_rate() */
static void recovery_pace(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	bool slow_start = tcp_snd_cwnd(tp) < tp->snd_ssthresh / 2;
	u64 rate = (u64)tp->mss_cache * ((USEC_PER_SEC / 100) << 3);

	rate *= slow_start ? READ_ONCE(sock_net(sk)->ipv4.sysctl_tcp_pacing_ss_ratio) :
			     READ_ONCE(sock_net(sk)->ipv4.sysctl_tcp_pacing_ca_ratio);
	rate *= max(tcp_snd_cwnd(tp), tp->packets_out);
	if (tp->srtt_us)
		rate = div_u64(rate, tp->srtt_us);
	WRITE_ONCE(sk->sk_pacing_rate, min_t(u64, rate, READ_ONCE(sk->sk_max_pacing_rate)));
}

/* As tcp_cong_control() does for controls without it */
static void recovery_cong_control(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	if (tcp_in_cwnd_reduction(sk)) {
		recovery_reduce(sk, flag, rs);
	} else if (recovery_may_raise(sk, flag)) {
		recovery_of(sk)->parent->cong_avoid(sk, ack, rs->acked_sacked);
		tcp_sk(sk)->snd_cwnd_stamp = tcp_jiffies32;
	}
	recovery_pace(sk);
	trace_ack(sk, rs);
}

static void recovery_set_state(struct sock *sk, u8 new_state)
{
	const struct recovery *control = recovery_of(sk);
	u8 old_state = inet_csk(sk)->icsk_ca_state;
	struct tcp_sock *tp = tcp_sk(sk);

	if (control->parent->set_state)
		control->parent->set_state(sk, new_state);

	if (new_state == TCP_CA_Recovery) {
		/* The timer of RACK retransmits right now, as after an ACK for one packet. What an ACK began gets its window before
		 * anything is sent, and counts then.
		 */
		tcp_snd_cwnd_set(tp, recovery_window(sk, tp->prr_delivered + 1, 1, false, false));
	} else if (new_state < TCP_CA_CWR && tp->snd_ssthresh < TCP_INFINITE_SSTHRESH &&
		   (old_state == TCP_CA_CWR || (old_state == TCP_CA_Recovery && tp->undo_marker))) {
		/* As tcp_end_cwnd_reduction(): the marker is gone if the reduction was undone. */
		tcp_snd_cwnd_set(tp, reduction_end(control->rule, tcp_snd_cwnd(tp), tp->snd_ssthresh));
		tp->snd_cwnd_stamp = tcp_jiffies32;
	}
}

static void recovery_init(struct sock *sk)
{
	const struct recovery *control = recovery_of(sk);

	if (control->parent->init)
		control->parent->init(sk);
	recovery_pace(sk);
}

/* A control's operations are private to its module, but not to a socket that uses it. The socket keeps them from being unloaded. */
static const struct tcp_congestion_ops *parent_get(struct parent *parent)
{
	struct socket *user;
	int ret;

	ret = sock_create_kern(&init_net, AF_INET, SOCK_STREAM, IPPROTO_TCP, &user);
	if (ret)
		return ERR_PTR(ret);
	ret = READ_ONCE(user->ops)->setsockopt(user, SOL_TCP, TCP_CONGESTION, KERNEL_SOCKPTR((char *)parent->name),
					       strlen(parent->name));
	if (ret) {
		pr_err("tcp_recovery: this kernel has no congestion control %s: %d\n", parent->name, ret);
		sock_release(user);
		return ERR_PTR(ret);
	}
	parent->user = user;
	return inet_csk(user->sk)->icsk_ca_ops;
}

static void recovery_undo(void)
{
	int i, j;

	for (i = ARRAY_SIZE(parents) - 1; i >= 0; i--) {
		for (j = ARRAY_SIZE(rules) - 1; j >= 0; j--)
			if (controls[i][j].ops.key)
				tcp_unregister_congestion_control(&controls[i][j].ops);
		if (parents[i].user)
			sock_release(parents[i].user);
	}
}

static int __init recovery_register(void)
{
	int i, j, ret;

	for (i = 0; i < ARRAY_SIZE(parents); i++) {
		const struct tcp_congestion_ops *parent = parent_get(&parents[i]);

		if (IS_ERR(parent)) {
			ret = PTR_ERR(parent);
			goto undo;
		}
		for (j = 0; j < ARRAY_SIZE(rules); j++) {
			struct recovery *control = &controls[i][j];

			control->parent = parent;
			control->rule = j;
			control->ops = *parent;
			control->ops.owner = THIS_MODULE;
			control->ops.key = 0;
			control->ops.flags |= TCP_CONG_NON_RESTRICTED; /* any socket may choose it, as it may its parent */
			control->ops.init = recovery_init;
			control->ops.set_state = recovery_set_state;
			control->ops.cong_avoid = NULL;
			control->ops.cong_control = recovery_cong_control;
			snprintf(control->ops.name, TCP_CA_NAME_MAX, "%s_%s", parents[i].name, rules[j]);
			ret = tcp_register_congestion_control(&control->ops);
			if (ret) {
				control->ops.key = 0;
				goto undo;
			}
		}
	}
	return 0;

undo:
	recovery_undo();
	return ret;
}

static void __exit recovery_unregister(void)
{
	recovery_undo();
}

module_init(recovery_register);
module_exit(recovery_unregister);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("TCP reno and cubic with a choice of how the window is reduced in a recovery");
/* By which a socket that asks for a control has the module loaded */
MODULE_ALIAS("tcp_reno_prr");
MODULE_ALIAS("tcp_reno_3517");
MODULE_ALIAS("tcp_reno_rh");
MODULE_ALIAS("tcp_reno_ssrb");
MODULE_ALIAS("tcp_cubic_prr");
MODULE_ALIAS("tcp_cubic_3517");
MODULE_ALIAS("tcp_cubic_rh");
MODULE_ALIAS("tcp_cubic_ssrb");
