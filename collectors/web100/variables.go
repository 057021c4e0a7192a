// Package web100 presents a connection by the variables of web100 and RFC 4898
// (TCP Extended Statistics MIB), with what each is worth on a given kernel.
// What a host cannot tell has no value: a zero is always a measurement.
package web100

import (
	"fmt"
	"strings"

	"dumbbell/collectors/tcpinfo"
)

// A Grade says what a value is worth.
type Grade int

// Grades, from the worst.
const (
	Unavailable Grade = iota
	Approximate
	Exact
)

func (g Grade) String() string { return [...]string{"not available", "approximate", "exact"}[g] }

// A Capability is what a way to a value needs of a host.
type Capability string

// Capabilities. Those of tcp_info are the length of its structure.
const (
	Info    Capability = "tcp_info"                 // any kernel that is supported
	Info62  Capability = "tcp_info of Linux 6.2"    // rcv_wnd
	Info67  Capability = "tcp_info of Linux 6.7"    // total_rto and what follows
	EBPF    Capability = "eBPF"                     // types of the kernel, CAP_BPF and CAP_PERFMON
	Verdict Capability = "eBPF behind functions"    // the verdict of ip_queue_xmit
	Trace   Capability = "tracepoints"              // root, tcp_cong_state_set and tcp_probe
	Counter Capability = "counters, one flow alone" // exact if no other flow uses the network namespace
)

// A Way is one source of a variable.
type Way struct {
	Needs Capability
	Grade Grade
	How   string
	value func(*Connection) (int64, bool) // nil: of the whole host, in the rows that How names
}

// A Variable is one of web100's, with its ways, the best first.
type Variable struct {
	Name, Unit string
	Ways       []Way
}

func exact(how string, v func(*Connection) (int64, bool)) Way {
	return Way{Info, Exact, how, v}
}

func rough(how string, v func(*Connection) (int64, bool)) Way {
	return Way{Info, Approximate, how, v}
}

// of returns the value of a member of tcp_info.
func of(name string) func(*Connection) (int64, bool) {
	f := tcpinfo.FieldByName(name)
	return func(c *Connection) (int64, bool) { return c.now(f) }
}

// product multiplies two members: windows that the kernel counts in segments.
func product(a, b string) func(*Connection) (int64, bool) {
	x, y := of(a), of(b)
	return func(c *Connection) (int64, bool) {
		v, ok := x(c)
		w, known := y(c)
		return v * w, ok && known
	}
}

func difference(a, b string) func(*Connection) (int64, bool) {
	x, y := of(a), of(b)
	return func(c *Connection) (int64, bool) {
		v, ok := x(c)
		w, known := y(c)
		return v - w, ok && known
	}
}

func maximum(i int) func(*Connection) (int64, bool) {
	return func(c *Connection) (int64, bool) { return c.maximum[i], c.seen[i] }
}

func counted(name, note string) Way {
	return Way{EBPF, Exact, "`" + name + "`" + note, counter(name)}
}

func member(name string) Way { return exact("`"+name+"`", of(name)) }

// Variables is the table that the code and docs/variables.md both follow.
var Variables = []Variable{
	{"SegsOut", "segments", []Way{exact("`segs_out`; counts what the own qdisc dropped too", of("segs_out"))}},
	{"DataSegsOut", "segments", []Way{member("data_segs_out")}},
	{"DataOctetsOut", "bytes", []Way{member("bytes_sent")}},
	{"SegsRetrans", "segments", []Way{exact("`total_retrans`; includes SYN", of("total_retrans"))}},
	{"OctetsRetrans", "bytes", []Way{member("bytes_retrans")}},
	{"SegsIn", "segments", []Way{member("segs_in")}},
	{"DataSegsIn", "segments", []Way{member("data_segs_in")}},
	{"AckPktsIn", "segments", []Way{rough("`segs_in` - `data_segs_in`; includes all without data", difference("segs_in", "data_segs_in"))}},
	{"ThruOctetsAcked", "bytes", []Way{exact("`bytes_acked`; SYN and FIN count", of("bytes_acked"))}},
	{"ThruOctetsReceived", "bytes", []Way{member("bytes_received")}},
	{"CurMSS", "bytes", []Way{member("snd_mss")}},
	{"CurCwnd", "bytes", []Way{exact("`snd_cwnd` * `snd_mss`", product("snd_cwnd", "snd_mss"))}},
	{"MaxCwnd", "bytes", []Way{
		{Trace, Approximate, "maximum of `tcp_probe` and samples; misses what the last ACK before a timeout adds", probedMaxCwnd},
		rough("maximum of samples; misses peaks between them", maximum(maxCwnd)),
	}},
	{"CurSsthresh", "bytes", []Way{exact("`snd_ssthresh` * `snd_mss`; absent while infinite", ssthresh)}},
	{"PipeSize", "bytes", []Way{exact("(`unacked` - `sacked` - `lost` + `retrans`) * `snd_mss`", pipe)}},
	{"SmoothedRTT", "us", []Way{member("srtt_us")}},
	{"RTTVar", "us", []Way{rough("`rttvar_us`, the mean deviation, not the variance that RTO uses", of("rttvar_us"))}},
	{"MinRTT", "us", []Way{exact("`min_rtt_us`; of the last 300 s (tcp_min_rtt_wlen)", of("min_rtt_us"))}},
	{"MaxRTT", "us", []Way{counted("rtt_max_us", ""), rough("maximum of sampled `srtt_us`; too low", maximum(maxRTT))}},
	{"SampleRTT", "us", []Way{counted("rtt_last_us", "")}},
	{"SumRTT", "us", []Way{counted("rtt_sum_us", "")}},
	{"CountRTT", "samples", []Way{counted("rtt_samples", "; that of the handshake is not among them")}},
	{"CurRTO", "us", []Way{exact("`rto_us`; in jiffies of the kernel", of("rto_us"))}},
	{"MaxRTO", "us", []Way{rough("maximum of samples", maximum(maxRTO))}},
	{"SndLimTimeRwin", "us", []Way{rough("`rwnd_limited_us`; in jiffies, while data is queued", of("rwnd_limited_us"))}},
	{"SndLimTimeCwnd", "us", []Way{rough("`busy_time_us` - `rwnd_limited_us` - `sndbuf_limited_us`; includes pacing and the own queue", cwndLimited)}},
	{"SndLimTimeSnd", "us", []Way{rough("`sndbuf_limited_us` + time without data to send, since the flow's start or, if that is later, the first sample", senderLimited)}},
	{"CongestionSignals", "signals", []Way{
		counted("congestion_signals", "; `signals_*` tell their causes"),
		traced(Approximate, "`tcp_event` ca_state into CWR, into Recovery but from CWR, into Loss by a timeout from Open, Disorder or after progress; includes a smaller path MTU", func(h *history) int64 { return h.signals }),
		rough("changes of sampled `ca_state` into CWR, Recovery or Loss; misses those between samples", signals),
	}},
	{"FastRetran", "episodes", []Way{
		counted("fast_retransmits", ""),
		traced(Exact, "changes of `tcp_event` ca_state into Recovery", func(h *history) int64 { return h.fastRetransmits }),
		{Counter, Exact, "`snmp` TcpExtTCPSackRecovery + TcpExtTCPRenoRecovery", nil},
	}},
	{"Timeouts", "episodes", []Way{
		{Info67, Exact, "`total_rto_recoveries`, and one that lasts; includes SYN", of("total_rto_recoveries")},
		{Counter, Exact, "`snmp` TcpExtTCPTimeouts less those that follow another", nil},
		traced(Approximate, "rows of `tcp_event` ca_state with Loss, of those at the same `snd_una` the first; without SYN, includes a smaller path MTU", func(h *history) int64 { return h.timeouts }),
	}},
	{"AbruptTimeouts", "timeouts", []Way{
		traced(Approximate, "of these timeouts, those in Open", func(h *history) int64 { return h.abruptTimeouts }),
	}},
	{"SubsequentTimeouts", "timeouts", []Way{
		{Info67, Exact, "`total_rto` - `total_rto_recoveries`", difference("total_rto", "total_rto_recoveries")},
		traced(Approximate, "rows of `tcp_event` ca_state with Loss, less those timeouts", func(h *history) int64 { return h.followingTimeouts }),
	}},
	{"CurTimeoutCount", "timeouts", []Way{member("backoff")}},
	{"CongestionOverCount", "undos", []Way{
		{Counter, Exact, "`snmp` TcpExtTCPFullUndo + PartialUndo + DSACKUndo + LossUndo", nil},
	}},
	{"SpuriousRtoDetected", "timeouts", []Way{{Counter, Exact, "`snmp` TcpExtTCPSpuriousRTOs", nil}}},
	{"SendStall", "stalls", []Way{
		{Verdict, Exact, "`send_stalls`", stallsCounted(true)},
		{EBPF, Approximate, "`send_stalls`: packets that the own queue dropped; more than stalls where it drops several at once, or those that it had taken", stallsCounted(false)},
		{Trace, Approximate, "changes of `tcp_event` ca_state into CWR that outlast the segment at hand, without ECN; of several drops in one CWR the first", sendStalls},
	}},
	{"OtherReductions", "reductions", []Way{
		traced(Approximate, "falls of `snd_cwnd` from one `tcp_probe` to the next while ca_state stays Open", func(h *history) int64 { return h.reductions }),
		rough("falls of sampled `snd_cwnd` while `ca_state` stays Open", reductions),
	}},
	{"SlowStart", "ACKs", []Way{
		traced(Approximate, "rises of `snd_cwnd` from one `tcp_probe` to the next in Open, below `snd_ssthresh`", func(h *history) int64 { return h.slowStart }),
	}},
	{"CongAvoid", "ACKs", []Way{
		traced(Approximate, "rises of `snd_cwnd` from one `tcp_probe` to the next in Open, from `snd_ssthresh` on", func(h *history) int64 { return h.congAvoid }),
	}},
	{"DupAcksIn", "ACKs", []Way{
		counted("dup_acks_in", "; while ESTABLISHED and data is outstanding"),
		traced(Approximate, "`tcp_probe` without data, while some is outstanding, that leaves `snd_una` as it is; includes ACKs that come late, not those after the own FIN", func(h *history) int64 { return h.dupAcks }),
	}},
	{"DupAcksOut", "ACKs", []Way{rough("`rcv_ooopack` of the receiver; ACK compression sends fewer", of("rcv_ooopack"))}},
	{"SACKsRcvd", "ACKs", nil},
	{"DSACKDups", "segments", []Way{member("dsack_dups")}},
	{"ReorderingEvents", "events", []Way{rough("`reord_seen`; those that raised the estimate", of("reord_seen"))}},
	{"ECNsignals", "segments", []Way{rough("`delivered_ce`; segments, not ECE", of("delivered_ce"))}},
	{"CurRwinRcvd", "bytes", []Way{member("snd_wnd")}},
	{"CurRwinSent", "bytes", []Way{
		{Info62, Exact, "`rcv_wnd`", of("rcv_wnd")},
		traced(Approximate, "`rcv_wnd` of the last `tcp_probe`, before that segment was processed", func(h *history) int64 { return h.last.receiveWindow }),
	}},
	{"CurAppWQueue", "bytes", []Way{member("notsent_bytes")}},
	{"CurAppRQueue", "bytes", []Way{exact("`rqueue_bytes`", func(c *Connection) (int64, bool) { return c.receiveQueue, c.samples > 0 })}},
	{"PAWSRejects", "segments", []Way{
		{Trace, Approximate, "`drops` TCP_RFC7323_PAWS*, of the whole host", nil},
		{Counter, Exact, "`snmp` TcpExtPAWSEstab", nil},
	}},
	{"QuenchRcvd", "messages", nil},
}

// Grade is what a variable is worth where a host has the given capabilities,
// and the way to it.
func (v *Variable) Grade(has func(Capability) bool) (Grade, Way) {
	for _, w := range v.Ways {
		if has(w.Needs) {
			return w.Grade, w
		}
	}
	return Unavailable, Way{}
}

// of is the best value that is known of a connection, and its grade.
func (v *Variable) of(c *Connection) (int64, Grade) {
	for _, w := range v.Ways {
		if w.value == nil {
			continue
		}
		if value, ok := w.value(c); ok {
			return value, w.Grade
		}
	}
	return 0, Unavailable
}

// Markdown is the table for docs/variables.md.
func Markdown() string {
	var b strings.Builder
	b.WriteString("| variable | unit | grade | needs | how |\n|---|---|---|---|---|\n")
	for _, v := range Variables {
		for i, w := range v.Ways {
			name, unit := v.Name, v.Unit
			if i > 0 {
				name, unit = "", "" // another way to the same
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", name, unit, w.Grade, w.Needs, w.How)
		}
		if len(v.Ways) == 0 {
			fmt.Fprintf(&b, "| %s | %s | %s | | |\n", v.Name, v.Unit, Unavailable)
		}
	}
	return b.String()
}
