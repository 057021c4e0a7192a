package qdisc

import (
	"encoding/binary"
	"strings"
)

// An extra is a counter that only one kind of qdisc has, a member of its
// structure in include/uapi/linux/pkt_sched.h.
type extra struct {
	name   string
	offset int
	width  int // bytes: 4 or 8
	signed bool
}

// extras are the structures of the kinds. A name that ends in "*" is 64 bits
// wide, one that begins with "-" is signed, and "." is a member left out. What
// the kernel calls a delay is in us.
var extras = map[string][]extra{
	"codel":    layout("maxpacket count lastcount ldelay_us -. drop_overlimit ecn_mark dropping ce_mark"),
	"fq_codel": layout(". maxpacket drop_overlimit ecn_mark new_flow_count new_flows_len old_flows_len ce_mark memory_usage_bytes drop_overmemory"),
	"fq": layout("gc_flows* .* tcp_retrans* throttled* flows_plimit* pkts_too_long* allocation_errors* -.* " +
		"flows inactive_flows throttled_flows unthrottle_latency_ns ce_mark* horizon_drops* horizon_caps* fastpath_packets*"),
	"pie":     layout("prob* delay_us avg_dq_rate dq_rate_estimating packets_in dropped overlimit maxq ecn_mark"),
	"fq_pie":  layout("packets_in dropped overlimit overmemory ecn_mark new_flow_count new_flows_len old_flows_len memory_usage_bytes"),
	"red":     layout("early pdrop other marked"),
	"choke":   layout("early pdrop other marked matched"),
	"hhf":     layout("drop_overlimit hh_overlimit hh_tot_count hh_cur_count"),
	"sfb":     layout("earlydrop penaltydrop bucketdrop queuedrop childdrop marked maxqlen maxprob avgprob"),
	"dualpi2": layout("prob delay_c_us delay_l_us packets_in_c packets_in_l maxq ecn_mark step_marks -credit memory_used_bytes max_memory_used_bytes memory_limit_bytes"),
	"rapid":   layout("retrans* jumped* ts_regressions* restamped* maxq flows"), // modules/sch_rapid
	"htb":     layout("lends borrows . -tokens -ctokens"),                       // of a class; its qdisc has none
}

func layout(members string) (list []extra) {
	offset := 0
	for _, m := range strings.Fields(members) {
		e := extra{offset: offset, width: 4}
		m, e.signed = strings.CutPrefix(m, "-")
		if name, wide := strings.CutSuffix(m, "*"); wide {
			m, e.width = name, 8
		}
		e.name = m
		if offset += e.width; m != "." {
			list = append(list, e)
		}
	}
	return list
}

// value reads a member, and false where this kernel's structure is shorter.
func (e *extra) value(b []byte) (int64, bool) {
	if e.offset+e.width > len(b) {
		return 0, false
	}
	b = b[e.offset:]
	switch {
	case e.width == 8:
		return int64(binary.NativeEndian.Uint64(b)), true
	case e.signed:
		return int64(int32(binary.NativeEndian.Uint32(b))), true
	}
	return int64(binary.NativeEndian.Uint32(b)), true
}
