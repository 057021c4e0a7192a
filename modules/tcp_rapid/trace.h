/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM rapid

#if !defined(RAPID_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define RAPID_TRACE_H

#include <linux/tracepoint.h>
#include <net/tcp.h>
#include <trace/events/net_probe_common.h>

/* The connection of an event, as the kernel's own tcp_probe tells it. */
#define CONNECTION_FIELDS						\
	__array(__u8, saddr, sizeof(struct sockaddr_in6))		\
	__array(__u8, daddr, sizeof(struct sockaddr_in6))		\
	__field(__u16, sport)						\
	__field(__u16, dport)						\
	__field(__u16, family)

#define assign_connection(entry, sk) do {				\
		const struct inet_sock *inet = inet_sk(sk);		\
									\
		memset(entry->saddr, 0, sizeof(struct sockaddr_in6));	\
		memset(entry->daddr, 0, sizeof(struct sockaddr_in6));	\
		TP_STORE_ADDR_PORTS(entry, inet, sk);			\
		entry->sport = ntohs(inet->inet_sport);			\
		entry->dport = ntohs(inet->inet_dport);			\
		entry->family = sk->sk_family;				\
	} while (0)

/* What became of a p-stream. The numbers are rapid_verdict's of main.c. */
#define show_verdict(verdict) \
	__print_symbolic(verdict, { 0, "estimated" }, { 1, "lost" }, { 2, "slow" }, { 3, "clock" }, { 4, "bursts" })

/* A p-stream that is acknowledged wholly. Rates in bit/s of payload: those that it was planned with, what it found, and what
 * the rate has become.
 */
TRACE_EVENT(pstream,
	TP_PROTO(struct sock *sk, u32 id, u32 packets, u32 samples, u32 verdict, bool slow_start, u32 excursion, u64 lowest,
		 u64 highest, u64 available, u64 rate, u64 duration_ns),
	TP_ARGS(sk, id, packets, samples, verdict, slow_start, excursion, lowest, highest, available, rate, duration_ns),
	TP_STRUCT__entry(
		CONNECTION_FIELDS
		__field(u32, id)
		__field(u32, packets)
		__field(u32, samples)
		__field(u32, verdict)
		__field(u8, slow_start)
		__field(u8, ca_state)
		__field(u32, excursion)
		__field(u64, lowest)
		__field(u64, highest)
		__field(u64, available)
		__field(u64, rate)
		__field(u64, duration_ns)
	),
	TP_fast_assign(
		assign_connection(__entry, sk);
		__entry->id = id;
		__entry->packets = packets;
		__entry->samples = samples;
		__entry->verdict = verdict;
		__entry->slow_start = slow_start;
		__entry->ca_state = inet_csk(sk)->icsk_ca_state;
		__entry->excursion = excursion;
		__entry->lowest = lowest * BITS_PER_BYTE;
		__entry->highest = highest * BITS_PER_BYTE;
		__entry->available = available * BITS_PER_BYTE;
		__entry->rate = rate * BITS_PER_BYTE;
		__entry->duration_ns = duration_ns;
	),
	TP_printk("src=%pISpc dest=%pISpc id=%u packets=%u samples=%u verdict=%s slow_start=%u ca_state=%u excursion=%u "
		  "lowest_bps=%llu highest_bps=%llu available_bps=%llu rate_bps=%llu duration_ns=%llu",
		  __entry->saddr, __entry->daddr, __entry->id, __entry->packets, __entry->samples,
		  show_verdict(__entry->verdict), __entry->slow_start, __entry->ca_state, __entry->excursion, __entry->lowest,
		  __entry->highest, __entry->available, __entry->rate, __entry->duration_ns)
);

/* What lies between an acknowledged segment and the next: the gap that was planned, that which was sent, and that with which
 * they arrived.
 */
TRACE_EVENT(sample,
	TP_PROTO(struct sock *sk, u32 id, u32 packet, u32 bytes, u32 planned_ns, u32 sent_ns, u32 received_ns),
	TP_ARGS(sk, id, packet, bytes, planned_ns, sent_ns, received_ns),
	TP_STRUCT__entry(
		CONNECTION_FIELDS
		__field(u32, id)
		__field(u32, packet)
		__field(u32, bytes)
		__field(u32, planned_ns)
		__field(u32, sent_ns)
		__field(u32, received_ns)
	),
	TP_fast_assign(
		assign_connection(__entry, sk);
		__entry->id = id;
		__entry->packet = packet;
		__entry->bytes = bytes;
		__entry->planned_ns = planned_ns;
		__entry->sent_ns = sent_ns;
		__entry->received_ns = received_ns;
	),
	TP_printk("src=%pISpc dest=%pISpc id=%u packet=%u bytes=%u planned_ns=%u sent_ns=%u received_ns=%u",
		  __entry->saddr, __entry->daddr, __entry->id, __entry->packet, __entry->bytes,
		  __entry->planned_ns, __entry->sent_ns, __entry->received_ns)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
