package observe

import "strings"

// A Left is something that is not read, and the reason.
type Left struct {
	Name   string `json:"name"` // of a setting; * is any text
	Reason string `json:"reason"`
}

// LeftOut is all that a reading leaves out. Settings of these names are never
// in it; rows in brackets are parts of a setting.
var LeftOut = []Left{
	{"net.ipv4.tcp_fastopen_key", "a secret"},
	{"net.ipv6.conf.*.stable_secret", "a secret"},
	{"net.core.netdev_rss_key", "random, new with each boot"},
	{"net.ipv4.route.flush", "can only be written"},
	{"net.ipv6.route.flush", "can only be written"},
	{"net.ipv4.tcp_available_congestion_control", "grows when a module is loaded, which changes nothing by itself; which are allowed and which is the default are read"},
	{"net.ipv4.tcp_available_ulp", "grows when a module is loaded, which changes nothing by itself"},
	{"net.netfilter.nf_conntrack_count", "counts connections"},
	{"net.netfilter.nf_conntrack_buckets", "follows nf_conntrack_max or the memory"},
	{"net.core.bpf_jit_*", "only root may read it; it protects the compiler of BPF, and does not influence TCP"},
	{"* address * temporary", "of IPv6 privacy: the kernel makes a new one each day"},
	{"route * cache", "the kernel makes and forgets them as packets come"},
	{"module tcp_*", "loading a congestion control changes nothing by itself; its parameters are read"},
	{"module sch_*", "the kernel loads a queueing discipline when it is first asked for; the queues themselves are read"},
	{"module cls_*", "likewise a filter"},
	{"module em_*", "likewise a match of a filter"},
	{"module act_*", "likewise an action of a filter"},
	{"module ifb", "likewise; interfaces of it are read"},
	{"module *_diag", "the kernel loads it when somebody asks for sockets"},
	{"module af_packet*", "the kernel loads it when somebody captures packets"},
	{"* ring * (uml-vector)", "reading the rings of this driver ends a kernel 6.1 in a panic"},
	{"(kernel command line: rng_seed, time-travel-start)", "each world of virtual time has its own: the seed of its point, and the time at which it begins"},
	{"(irq affinity: numbers of interrupts)", "the kernel gives them anew at each boot; their processors are read, in their order"},
	{"(addresses: lifetimes)", "they run down"},
	{"(routes: expiry, use and age)", "they run down, or count"},
	{"(qdiscs, classes, filters, actions, rules: counters and times of use)", "they count packets"},
	{"(qdiscs: handles from 8000: on)", "the kernel counts them up at each replacement; written as auto:"},
	{"(htb: direct_packets)", "counts packets"},
	{"(netem: prng_seed)", "random unless it is asked for, and then it is read back with the path"},
	{"(gred: options)", "counters are among them"},
	{"(actions: index and references)", "the kernel counts them up"},
	{"(nftables: handles, generation, counters, quotas used, elements of dynamic sets)", "they change when packets come or the same rules are loaded again"},
}

func leftOut(name string) bool {
	for i := range LeftOut {
		if matches(LeftOut[i].Name, name) {
			return true
		}
	}
	return false
}

// matches compares a name with a pattern, in which * is any text.
func matches(pattern, name string) bool {
	head, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == name
	}
	if !strings.HasPrefix(name, head) {
		return false
	}
	for name = name[len(head):]; ; name = name[1:] {
		if matches(rest, name) {
			return true
		}
		if name == "" {
			return false
		}
	}
}
