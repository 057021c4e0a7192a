package observe

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Numbers of include/uapi/linux/rtnetlink.h and pkt_sched.h.
const (
	tcLength = 20 // struct tcmsg

	tcKind         = 1  // TCA_KIND
	tcOptions      = 2  // TCA_OPTIONS
	tcChain        = 11 // TCA_CHAIN
	tcIngressBlock = 13 // TCA_INGRESS_BLOCK
	tcEgressBlock  = 14 // TCA_EGRESS_BLOCK

	handleRoot    = 0xffffffff // TC_H_ROOT
	handleIngress = 0xfffffff1 // TC_H_INGRESS
	filtersIn     = 0xfffffff2 // TC_H_CLSACT and TC_H_MIN_INGRESS
	filtersOut    = 0xfffffff3 // TC_H_CLSACT and TC_H_MIN_EGRESS

	firstAutomatic = 0x8000 // the kernel gives handles from here on
)

// handle writes one as tc does. Of those that the kernel has given nobody
// knows which it is: it counts them up whenever a queue is replaced.
func handle(h uint32) string {
	switch h {
	case handleRoot:
		return "root"
	case handleIngress:
		return "ingress"
	case filtersIn:
		return "ingress"
	case filtersOut:
		return "egress"
	}
	major := fmt.Sprintf("%x:", h>>16)
	if h>>16 >= firstAutomatic && h>>16 < 0xffff {
		major = "auto:"
	}
	if h&0xffff == 0 {
		return major
	}
	return fmt.Sprintf("%s%x", major, h&0xffff)
}

// optionNames are attributes of the options of queueing disciplines, and of
// their classes.
var optionNames = map[string][]string{
	"fq": {1: "limit", 2: "flow_limit", 3: "quantum", 4: "initial_quantum", 5: "pacing", 6: "flow_default_rate", 7: "maxrate", 8: "buckets_log",
		9: "refill_delay", 10: "orphan_mask", 11: "low_rate_threshold", 12: "ce_threshold", 13: "timer_slack", 14: "horizon", 15: "horizon_drop",
		16: "priomap", 17: "weights", 18: "offload_horizon"},
	"fq_codel": {1: "target", 2: "limit", 3: "interval", 4: "ecn", 5: "flows", 6: "quantum", 7: "ce_threshold", 8: "drop_batch", 9: "memory_limit",
		10: "ce_threshold_selector", 11: "ce_threshold_mask"},
	"codel": {1: "target", 2: "limit", 3: "interval", 4: "ecn", 5: "ce_threshold"},
	"pie":   {1: "target", 2: "limit", 3: "tupdate", 4: "alpha", 5: "beta", 6: "ecn", 7: "bytemode", 8: "dq_rate_estimator"},
	"htb":   {1: "parameters", 2: "init", 5: "direct_qlen", 6: "rate", 7: "ceil"},
	"netem": {1: "correlation", 3: "reorder", 4: "corrupt", 5: "loss", 6: "rate", 7: "ecn", 8: "rate64", 10: "latency", 11: "jitter", 12: "slot"},
	"tbf":   {1: "parameters", 4: "rate", 5: "peakrate", 6: "burst", 7: "mtu"},
	"cake": {2: "bandwidth", 3: "diffserv", 4: "atm", 5: "flow_mode", 6: "overhead", 7: "rtt", 8: "target", 9: "autorate", 10: "memlimit", 11: "nat",
		12: "raw", 13: "wash", 14: "mpu", 15: "ingress", 16: "ack_filter", 17: "split_gso", 18: "fwmark"},
}

// structures are kinds whose options are a structure, followed by attributes
// if there is more than its length.
var structures = map[string]int{
	"pfifo": 4, "bfifo": 4, "pfifo_head_drop": 4, "pfifo_fast": 20, "prio": 20, "sfq": 1 << 10, "netem": 24, "mqprio": 84, "multiq": 4, "plug": 8,
}

const (
	htbInit   = 2  // TCA_HTB_INIT
	netemSeed = 14 // TCA_NETEM_PRNG_SEED
)

// options writes what a queueing discipline or class was asked to be.
func options(kind string, b []byte) string {
	if kind == "gred" || len(b) == 0 {
		return ""
	}
	var words []string
	if length := structures[kind]; length > 0 {
		length = min(length, len(b))
		words, b = append(words, number(b[:length])), b[length:]
	}
	all, err := attributes(b)
	if err != nil { // an old kind has nothing but a structure
		return number(b)
	}
	var without []uint16
	switch kind {
	case "netem":
		without = append(without, netemSeed)
	case "htb":
		for i, a := range all {
			if a.kind == htbInit && len(a.data) >= 20 { // struct tc_htb_glob, which ends in direct_pkts
				all[i].data = a.data[:16]
			}
		}
	}
	if more := text(all, optionNames[kind], without...); more != "" {
		words = append(words, more)
	}
	return strings.Join(words, " ")
}

// filterless are kinds to which the kernel attaches no filters.
var filterless = []string{"noqueue", "pfifo", "bfifo", "pfifo_fast", "fq", "netem", "tbf", "mq", "codel", "pie", "red"}

// A place is where filters may be attached.
type place struct{ device, parent uint32 }

// readQueues reads queueing disciplines, classes and filters of all interfaces.
func (n *network) readQueues() {
	var classful []uint32
	var places []place
	blocks := make(map[uint32]bool)
	n.dump("qdiscs", unix.RTM_GETQDISC, make([]byte, tcLength), tcLength, func(head []byte, all []attribute) {
		device, handles, parent, kind := u32(head, 4), u32(head, 8), u32(head, 12), findString(all, tcKind)
		name := "qdisc " + n.device(device) + " " + parentName(parent)
		n.join(name, strings.TrimSpace(kind+" "+handle(handles)+" "+options(kind, find(all, tcOptions))))
		for _, block := range []uint16{tcIngressBlock, tcEgressBlock} {
			if b := find(all, block); b != nil {
				blocks[u32(b, 0)] = true
			}
		}
		switch {
		case kind == "ingress":
			places = append(places, place{device, filtersIn})
		case kind == "clsact":
			places = append(places, place{device, filtersIn}, place{device, filtersOut})
		case handles != 0 && !slices.Contains(filterless, kind):
			places = append(places, place{device, handles})
		}
		if !slices.Contains(classful, device) && !slices.Contains([]string{"noqueue", "ingress", "clsact"}, kind) {
			classful = append(classful, device)
		}
	})
	for _, device := range classful {
		places = append(places, n.readClasses(device)...)
	}
	for _, at := range places {
		n.readFilters(at)
	}
	for block := range blocks {
		n.readFilters(place{sharedBlock, block})
	}
}

func parentName(parent uint32) string {
	switch parent {
	case handleRoot, handleIngress:
		return handle(parent)
	}
	return "parent " + handle(parent)
}

// withClasses are kinds whose classes have settings of their own. Those of
// others only tell which queue is below.
var withClasses = []string{"htb", "hfsc", "drr", "ets", "qfq", "cbq"}

func (n *network) readClasses(device uint32) (places []place) {
	request := make([]byte, tcLength)
	binary.NativeEndian.PutUint32(request[4:], device)
	n.dump("classes", unix.RTM_GETTCLASS, request, tcLength, func(head []byte, all []attribute) {
		kind := findString(all, tcKind)
		if !slices.Contains(withClasses, kind) {
			return
		}
		id := u32(head, 8)
		n.join("class "+n.device(device)+" "+handle(id),
			strings.TrimSpace(kind+" "+parentName(u32(head, 12))+" "+options(kind, find(all, tcOptions))))
		places = append(places, place{device, id})
	})
	return places
}

// sharedBlock stands for a device where filters belong to several of them.
const sharedBlock = 0xffffffff // TCM_IFINDEX_MAGIC_BLOCK

func (n *network) readFilters(at place) {
	request := make([]byte, tcLength)
	binary.NativeEndian.PutUint32(request[4:], at.device)
	binary.NativeEndian.PutUint32(request[12:], at.parent)
	where := n.device(at.device) + " " + handle(at.parent)
	if at.device == sharedBlock {
		where = fmt.Sprint("block ", at.parent)
	}
	n.dump("filters "+where, unix.RTM_GETTFILTER, request, tcLength, func(head []byte, all []attribute) {
		kind, id, info := findString(all, tcKind), u32(head, 8), u32(head, 16)
		if id == 0 && find(all, tcOptions) == nil {
			return // the head of a list of filters
		}
		protocol := uint16(info)
		name := fmt.Sprintf("filter %s preference %d protocol %04x chain %d handle %x", where, info>>16, protocol>>8|protocol<<8, u32(find(all, tcChain), 0), id)
		value, err := n.filterText(kind, find(all, tcOptions))
		if err != nil {
			n.unread(name, err)
			return
		}
		n.join(name, strings.TrimSpace(kind+" "+value))
	})
}

// A classifier says where a kind of filter keeps its actions, and what of it counts.
type classifier struct {
	actions uint16
	without []uint16
}

var classifiers = map[string]classifier{
	"u32":      {7, []uint16{9, 12}}, // TCA_U32_PCNT, TCA_U32_PAD
	"matchall": {2, []uint16{4, 5}},  // TCA_MATCHALL_PCNT, TCA_MATCHALL_PAD
	"flower":   {3, []uint16{87}},    // TCA_FLOWER_IN_HW_COUNT
	"fw":       {4, nil},
	"basic":    {3, []uint16{5, 6}}, // TCA_BASIC_PCNT, TCA_BASIC_PAD
	"bpf":      {1, []uint16{11}},   // TCA_BPF_ID, new with each load; TCA_BPF_TAG is of the program
	"route":    {5, nil},
	"flow":     {9, nil},
	"cgroup":   {1, nil},
}

func (n *network) filterText(kind string, b []byte) (string, error) {
	c, ok := classifiers[kind]
	if !ok {
		return "", fmt.Errorf("what of a filter %s counts packets is not known", kind)
	}
	all, err := attributes(b)
	if err != nil {
		return "", err
	}
	value := text(all, nil, append(c.without, c.actions)...)
	list, err := attributes(find(all, c.actions))
	if err != nil {
		return "", err
	}
	for _, a := range list {
		action, err := n.actionText(a.data)
		if err != nil {
			return "", err
		}
		value += " action " + action
	}
	return strings.TrimSpace(value), nil
}

// An actionLayout says where a kind of action keeps what: the attributes of
// its times of use and of its parameters, and which bytes of these the kernel
// counts.
type actionLayout struct {
	times, parameters uint16
	counts            [][2]int // from and to
}

var (
	general = [][2]int{{0, 4}, {12, 20}} // struct tc_gen: index, refcnt, bindcnt
	police  = [][2]int{{0, 4}, {44, 52}} // struct tc_police
	actions = map[string]actionLayout{
		"gact": {1, 2, general}, "mirred": {1, 2, general}, "skbedit": {1, 2, general}, "vlan": {1, 2, general}, "pedit": {1, 2, general},
		"tunnel_key": {1, 2, general}, "sample": {1, 2, general}, "bpf": {1, 2, general}, "skbmod": {1, 2, general}, "mpls": {1, 2, general},
		"csum": {2, 1, general}, "nat": {2, 1, general}, "connmark": {2, 1, general}, "ct": {2, 1, general},
		"police": {6, 1, police},
	}
)

const (
	actionKind    = 1 // TCA_ACT_KIND
	actionOptions = 2 // TCA_ACT_OPTIONS

	mirredDevice = 24 // offset in struct tc_mirred of the index of the other interface
)

func (n *network) actionText(b []byte) (string, error) {
	all, err := attributes(b)
	if err != nil {
		return "", err
	}
	kind := findString(all, actionKind)
	layout, ok := actions[kind]
	if !ok {
		return "", fmt.Errorf("what of an action %s counts packets is not known", kind)
	}
	inner, err := attributes(find(all, actionOptions))
	if err != nil {
		return "", err
	}
	to := ""
	for i, a := range inner {
		if a.kind != layout.parameters {
			continue
		}
		inner[i].data = slices.Clone(a.data)
		for _, c := range layout.counts {
			clear(inner[i].data[min(c[0], len(a.data)):min(c[1], len(a.data))])
		}
		if kind == "mirred" && len(a.data) >= mirredDevice+4 {
			to = " to " + n.device(u32(a.data, mirredDevice)) // its index is new when it is made again
			clear(inner[i].data[mirredDevice : mirredDevice+4])
		}
	}
	return strings.TrimSpace(kind+" "+text(inner, nil, layout.times)) + to, nil
}
