/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM recovery

#if !defined(RECOVERY_EVENTS_H) || defined(TRACE_HEADER_MULTI_READ)
#define RECOVERY_EVENTS_H

#include <linux/tracepoint.h>
#include <net/tcp.h>
#include <trace/events/net_probe_common.h>

/* An ACK, when the window has been set and nothing is sent yet. Windows are in packets, srtt is in us. */
TRACE_EVENT(ack,
	TP_PROTO(const struct sock *sk, const struct rate_sample *rs),
	TP_ARGS(sk, rs),

	TP_STRUCT__entry(
		__array(__u8, saddr, sizeof(struct sockaddr_in6))
		__array(__u8, daddr, sizeof(struct sockaddr_in6))
		__field(__u16, sport)
		__field(__u16, dport)
		__field(__u16, family)
		__field(__u8, ca_state)
		__field(__u32, snd_una)
		__field(__u32, snd_nxt)
		__field(__u32, snd_cwnd)
		__field(__u32, snd_ssthresh)
		__field(__u32, pipe)
		__field(__u32, prior_cwnd)
		__field(__u32, prr_delivered)
		__field(__u32, prr_out)
		__field(__u32, delivered)
		__field(__u32, lost)
		__field(__u32, srtt)
	),

	TP_fast_assign(
		const struct inet_sock *inet = inet_sk(sk);
		const struct tcp_sock *tp = tcp_sk(sk);

		memset(__entry->saddr, 0, sizeof(struct sockaddr_in6));
		memset(__entry->daddr, 0, sizeof(struct sockaddr_in6));
		TP_STORE_ADDR_PORTS(__entry, inet, sk);
		__entry->sport = ntohs(inet->inet_sport);
		__entry->dport = ntohs(inet->inet_dport);
		__entry->family = sk->sk_family;
		__entry->ca_state = inet_csk(sk)->icsk_ca_state;
		__entry->snd_una = tp->snd_una;
		__entry->snd_nxt = tp->snd_nxt;
		__entry->snd_cwnd = tcp_snd_cwnd(tp);
		__entry->snd_ssthresh = tp->snd_ssthresh;
		__entry->pipe = tcp_packets_in_flight(tp);
		__entry->prior_cwnd = tp->prior_cwnd;
		__entry->prr_delivered = tp->prr_delivered;
		__entry->prr_out = tp->prr_out;
		__entry->delivered = rs->acked_sacked;
		__entry->lost = rs->losses;
		__entry->srtt = tp->srtt_us >> 3;
	),

	TP_printk("src=%pISpc dest=%pISpc ca_state=%u snd_una=%u snd_nxt=%u snd_cwnd=%u snd_ssthresh=%u pipe=%u prior_cwnd=%u prr_delivered=%u prr_out=%u delivered=%u lost=%u srtt=%u",
		  __entry->saddr, __entry->daddr, __entry->ca_state, __entry->snd_una, __entry->snd_nxt, __entry->snd_cwnd,
		  __entry->snd_ssthresh, __entry->pipe, __entry->prior_cwnd, __entry->prr_delivered, __entry->prr_out,
		  __entry->delivered, __entry->lost, __entry->srtt)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE events
#include <trace/define_trace.h>
