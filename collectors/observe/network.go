package observe

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"dumbbell/collectors/kernel"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// A device is a network interface.
type device struct {
	index uint32
	name  string
}

// A network asks the kernel about this network namespace.
type network struct {
	*Reading
	netlink *netlink.Conn
	devices map[uint32]string // names by index
}

func (r *Reading) readNetwork() {
	conn, err := kernel.Dial(unix.NETLINK_ROUTE)
	if err != nil {
		for _, name := range []string{"interfaces", "addresses", "qdiscs", "routes", "rules"} {
			r.unread(name, err)
		}
		return
	}
	defer conn.Close()
	n := &network{Reading: r, netlink: conn, devices: make(map[uint32]string)}
	devices := n.readLinks()
	n.readAddresses()
	n.readQueues()
	n.readRoutes()
	n.readRules()
	r.readEthtool(devices)
}

// dump gives each answer to a request for all of something: the fixed part of
// the message, and its attributes.
func (n *network) dump(what string, kind uint16, request []byte, length int, each func(head []byte, all []attribute)) {
	replies, err := kernel.Dump(n.netlink, netlink.HeaderType(kind), request)
	for _, reply := range replies {
		if len(reply.Data) < length {
			err = short
			break
		}
		all, attributesErr := attributes(reply.Data[length:])
		if attributesErr != nil {
			err = attributesErr
			break
		}
		each(reply.Data[:length], all)
	}
	if err != nil {
		n.unread(what, err)
	}
}

const skipStatistics = 1 << 3 // RTEXT_FILTER_SKIP_STATS

// linkNames are attributes of a link that are settings, by their numbers.
var linkNames = map[uint16]string{
	unix.IFLA_MTU: "mtu", unix.IFLA_TXQLEN: "txqueuelen", unix.IFLA_GSO_MAX_SIZE: "gso_max_size", unix.IFLA_GSO_MAX_SEGS: "gso_max_segs",
	unix.IFLA_GRO_MAX_SIZE: "gro_max_size", 63: "gso_ipv4_max_size", 64: "gro_ipv4_max_size",
	unix.IFLA_NUM_TX_QUEUES: "tx queues", unix.IFLA_NUM_RX_QUEUES: "rx queues",
}

// operstates are those of RFC 2863.
var operstates = []string{"unknown", "not present", "down", "lower layer down", "testing", "dormant", "up"}

// readLinks reads all interfaces, and returns them but for the loopback.
func (n *network) readLinks() (devices []device) {
	request := make([]byte, unix.SizeofIfInfomsg)
	mask, _ := netlink.MarshalAttributes([]netlink.Attribute{{Type: unix.IFLA_EXT_MASK, Data: []byte{skipStatistics, 0, 0, 0}}})
	n.dump("interfaces", unix.RTM_GETLINK, append(request, mask...), len(request), func(head []byte, all []attribute) {
		d := device{u32(head, 4), findString(all, unix.IFLA_IFNAME)}
		n.devices[d.index] = d.name
		flags := u32(head, 8)
		if flags&unix.IFF_LOOPBACK != 0 {
			return
		}
		devices = append(devices, d)
		for _, a := range all {
			if name, ok := linkNames[a.kind]; ok {
				n.set(d.name+" "+name, number(a.data))
			}
		}
		state := "down"
		if flags&unix.IFF_UP != 0 {
			state = "up"
		}
		n.set(d.name+" state", state)
		if b := find(all, unix.IFLA_OPERSTATE); len(b) == 1 && int(b[0]) < len(operstates) {
			n.set(d.name+" link", operstates[b[0]])
		}
		if xdp, err := attributes(find(all, unix.IFLA_XDP)); err == nil {
			if b := find(xdp, unix.IFLA_XDP_ATTACHED); len(b) == 1 && b[0] != 0 {
				n.set(d.name+" xdp", "attached, mode "+number(b))
			}
		}
	})
	return devices
}

func (n *network) device(index uint32) string {
	if name, ok := n.devices[index]; ok {
		return name
	}
	return fmt.Sprint("interface ", index)
}

// scopes and tables that have names.
var (
	scopes = map[byte]string{0: "global", 200: "site", 253: "link", 254: "host", 255: "nowhere"}
	tables = map[uint32]string{253: "default", 255: "local"} // main is not named
)

func scope(s byte) string {
	if name, ok := scopes[s]; ok {
		return name
	}
	return strconv.Itoa(int(s))
}

func (n *network) readAddresses() {
	n.dump("addresses", unix.RTM_GETADDR, make([]byte, unix.SizeofIfAddrmsg), unix.SizeofIfAddrmsg, func(head []byte, all []attribute) {
		flags := uint32(head[2])
		if b := find(all, unix.IFA_FLAGS); b != nil {
			flags = u32(b, 0)
		}
		b := find(all, unix.IFA_LOCAL)
		if b == nil {
			b = find(all, unix.IFA_ADDRESS)
		}
		name := fmt.Sprintf("%s address %s/%d", n.device(u32(head, 4)), address(b), head[1])
		if head[0] == unix.AF_INET6 && flags&unix.IFA_F_TEMPORARY != 0 {
			name += " temporary"
		}
		value := "scope " + scope(head[3])
		if flags&unix.IFA_F_NOPREFIXROUTE != 0 {
			value += " noprefixroute"
		}
		if flags&unix.IFA_F_DADFAILED != 0 {
			value += " dadfailed"
		}
		n.set(name, value)
	})
}

func address(b []byte) string {
	if a, ok := netip.AddrFromSlice(b); ok {
		return a.String()
	}
	return number(b)
}

// metrics are those of a route, by their numbers (RTAX_*).
var metrics = []string{1: "lock", 2: "mtu", 3: "window", 4: "rtt", 5: "rttvar", 6: "ssthresh", 7: "cwnd", 8: "advmss", 9: "reordering",
	10: "hoplimit", 11: "initcwnd", 12: "features", 13: "rto_min", 14: "initrwnd", 15: "quickack", 16: "congctl", 17: "fastopen_no_cookie"}

var routeTypes = []string{1: "", 2: "local", 3: "broadcast", 4: "anycast", 5: "multicast", 6: "blackhole", 7: "unreachable", 8: "prohibit", 9: "throw", 10: "nat"}

const routeCongestionControl = 16 // RTAX_CC_ALGO

// Attributes of a route that are spelled out, or change by themselves.
var routeKnown = []uint16{unix.RTA_DST, unix.RTA_TABLE, unix.RTA_GATEWAY, unix.RTA_VIA, unix.RTA_OIF, unix.RTA_PREFSRC, unix.RTA_PRIORITY,
	unix.RTA_METRICS, unix.RTA_MULTIPATH, unix.RTA_CACHEINFO, unix.RTA_EXPIRES, unix.RTA_PREF}

// readRoutes reads the routes of all tables. Those of one destination and
// table are one setting.
func (n *network) readRoutes() {
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		request := make([]byte, unix.SizeofRtMsg)
		request[0] = family
		routes := make(map[string][]string)
		n.dump("routes", unix.RTM_GETROUTE, request, len(request), func(head []byte, all []attribute) {
			name, value := n.route(head, all)
			routes[name] = append(routes[name], value)
		})
		for name, values := range routes {
			slices.Sort(values)
			n.set(name, strings.Join(values, "; "))
		}
	}
}

// route names and writes one route, as "ip route" does.
func (n *network) route(head []byte, all []attribute) (name, value string) {
	family, table, flags := head[0], uint32(head[4]), u32(head, 8)
	name = "default"
	if family == unix.AF_INET6 {
		name = "::/0"
	}
	if b := find(all, unix.RTA_DST); b != nil {
		name = fmt.Sprintf("%s/%d", address(b), head[1])
	}
	name = "route " + name
	if b := find(all, unix.RTA_TABLE); b != nil {
		table = u32(b, 0)
	}
	if text, ok := tables[table]; ok {
		name += " table " + text
	} else if table != unix.RT_TABLE_MAIN {
		name += fmt.Sprint(" table ", table)
	}
	if flags&unix.RTM_F_CLONED != 0 {
		name += " cache"
	}
	var words []string
	if kind := head[7]; int(kind) < len(routeTypes) && routeTypes[kind] != "" {
		words = append(words, routeTypes[kind])
	}
	words = append(words, n.hop(all)...)
	if b := find(all, unix.RTA_MULTIPATH); b != nil {
		words = append(words, n.hops(b)...)
	}
	if b := find(all, unix.RTA_PREFSRC); b != nil {
		words = append(words, "src "+address(b))
	}
	words = append(words, "proto "+strconv.Itoa(int(head[5])), "scope "+scope(head[6]))
	if head[3] != 0 {
		words = append(words, fmt.Sprint("tos ", head[3]))
	}
	if b := find(all, unix.RTA_PRIORITY); b != nil {
		words = append(words, "metric "+number(b))
	}
	if nested, err := attributes(find(all, unix.RTA_METRICS)); err == nil {
		for _, a := range nested {
			if a.kind == routeCongestionControl {
				words = append(words, "congctl "+cString(a.data))
			} else {
				words = append(words, text([]attribute{a}, metrics))
			}
		}
	}
	if b := find(all, unix.RTA_PREF); len(b) == 1 && b[0] != 0 {
		words = append(words, "pref "+number(b))
	}
	if flags&unix.RTNH_F_ONLINK != 0 {
		words = append(words, "onlink")
	}
	if more := text(all, nil, routeKnown...); more != "" {
		words = append(words, more)
	}
	return name, strings.Join(words, " ")
}

// hop is where packets go next.
func (n *network) hop(all []attribute) (words []string) {
	if b := find(all, unix.RTA_GATEWAY); b != nil {
		words = append(words, "via "+address(b))
	}
	if b := find(all, unix.RTA_VIA); len(b) > 2 {
		words = append(words, "via "+address(b[2:]))
	}
	if b := find(all, unix.RTA_OIF); b != nil {
		words = append(words, "dev "+n.device(u32(b, 0)))
	}
	return words
}

// hops are those of a route that has several.
func (n *network) hops(b []byte) (words []string) {
	for len(b) >= unix.SizeofRtNexthop {
		length := int(b[0]) | int(b[1])<<8
		if length < unix.SizeofRtNexthop || length > len(b) {
			break
		}
		all, err := attributes(b[unix.SizeofRtNexthop:length])
		if err != nil {
			break
		}
		words = append(words, "nexthop")
		words = append(words, n.hop(all)...)
		words = append(words, "dev "+n.device(u32(b, 4)), fmt.Sprint("weight ", int(b[3])+1))
		b = b[min(len(b), (length+3)&^3):]
	}
	return words
}

// ruleNames are attributes of a rule (FRA_*).
var ruleNames = []string{1: "to", 2: "from", 3: "iif", 4: "goto", 6: "priority", 10: "fwmark", 11: "flow", 12: "tun_id", 13: "suppress_ifgroup",
	14: "suppress_prefixlength", 15: "table", 16: "fwmask", 17: "oif", 19: "l3mdev", 20: "uidrange", 21: "proto", 22: "ipproto", 23: "sport", 24: "dport"}

const (
	rulePriority = 6
	ruleTable    = 15
)

// readRules reads what chooses the table of a route.
func (n *network) readRules() {
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		request := make([]byte, unix.SizeofRtMsg) // struct fib_rule_hdr
		request[0] = family
		n.dump("rules", unix.RTM_GETRULE, request, len(request), func(head []byte, all []attribute) {
			name := fmt.Sprint("rule ", u32(find(all, rulePriority), 0))
			if family == unix.AF_INET6 {
				name = "ipv6 " + name
			}
			value := fmt.Sprintf("to/%d from/%d tos %d action %d flags %d %s", head[1], head[2], head[3], head[7], u32(head, 8)&^1,
				text(all, ruleNames, rulePriority))
			n.join(name, value)
		})
	}
}
