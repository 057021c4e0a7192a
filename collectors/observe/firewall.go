package observe

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"dumbbell/collectors/kernel"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// readFirewalls reads digests of the rules of nftables and of the older
// iptables; "none" where there are none. It asks nothing that would make the
// kernel load a module.
func (r *Reading) readFirewalls() {
	modules, err := loadedModules()
	if err != nil {
		r.unread("nftables", err)
		r.unread("iptables", err)
		return
	}
	for name, read := range map[string]func(map[string]bool) (string, error){"nftables": readNftables, "iptables": readIptables} {
		rules, err := read(modules)
		if err != nil {
			r.unread(name, err)
		} else if rules == "" {
			r.set(name, "none")
		} else {
			sum := sha256.Sum256([]byte(rules))
			r.set(name, "sha256 "+hex.EncodeToString(sum[:]))
		}
	}
}

func loadedModules() (map[string]bool, error) {
	b, err := readBytes("/proc/modules")
	if errors.Is(err, unix.ENOENT) { // a kernel without modules
		return nil, nil
	}
	modules := make(map[string]bool)
	for line := range strings.Lines(string(b)) {
		name, _, _ := strings.Cut(line, " ")
		modules[name] = true
	}
	return modules, err
}

// Numbers of include/uapi/linux/netfilter/nf_tables.h.
const (
	nfLength    = 4  // struct nfgenmsg
	nfSubsystem = 10 // NFNL_SUBSYS_NFTABLES

	nfGetTable     = 1
	nfGetChain     = 4
	nfGetRule      = 7
	nfGetSet       = 10
	nfGetElement   = 13
	nfGetObject    = 19
	nfGetFlowtable = 23

	nfSetTable = 1
	nfSetName  = 2
	nfSetFlags = 3

	setTimeout, setEval = 0x10, 0x20 // flags of a set that packets change
)

// nfParts are what a set of rules is made of, each with attributes that say
// nothing of what it does: handles, positions, uses, counters.
var nfParts = []struct {
	name    string
	message uint16
	without []uint16
}{
	{"table", nfGetTable, []uint16{3, 4, 5, 7}},      // USE, HANDLE, PAD, OWNER
	{"chain", nfGetChain, []uint16{2, 6, 8, 9, 11}},  // HANDLE, USE, COUNTERS, PAD, ID
	{"rule", nfGetRule, []uint16{3, 6, 8, 9, 10}},    // HANDLE, POSITION, PAD, ID, POSITION_ID
	{"set", nfGetSet, []uint16{10, 14, 16}},          // ID, PAD, HANDLE
	{"object", nfGetObject, []uint16{4, 5, 6, 7}},    // DATA (of counters and quotas), USE, HANDLE, PAD
	{"flowtable", nfGetFlowtable, []uint16{4, 5, 6}}, // USE, HANDLE, PAD
}

// readNftables writes all rules.
func readNftables(modules map[string]bool) (string, error) {
	sockets, err := readBytes("/proc/thread-self/net/netlink")
	if err != nil {
		return "", err
	}
	served := false // whether the kernel has what serves netfilter's netlink
	for line := range strings.Lines(string(sockets)) {
		fields := strings.Fields(line)
		served = served || len(fields) > 2 && fields[1] == fmt.Sprint(unix.NETLINK_NETFILTER) && fields[2] == "0"
	}
	if !served || modules["nfnetlink"] && !modules["nf_tables"] {
		return "", nil
	}
	conn, err := kernel.Dial(unix.NETLINK_NETFILTER)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	var b strings.Builder
	for _, part := range nfParts {
		if err := nfDump(conn, part.message, nil, func(all []attribute) error {
			fmt.Fprintln(&b, part.name, nfText(all, part.without...))
			if part.message != nfGetSet || u32big(find(all, nfSetFlags))&(setTimeout|setEval) != 0 {
				return nil
			}
			of, err := netlink.MarshalAttributes([]netlink.Attribute{
				{Type: nfSetTable, Data: find(all, nfSetTable)}, {Type: nfSetName, Data: find(all, nfSetName)}})
			if err != nil {
				return err
			}
			return nfElements(conn, of, &b)
		}); err != nil {
			return "", fmt.Errorf("listing each %s: %w", part.name, err)
		}
	}
	return b.String(), nil
}

func u32big(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// nfElements writes the elements of a set, sorted: the kernel tells them as
// they are hashed.
func nfElements(conn *netlink.Conn, of []byte, b *strings.Builder) error {
	const list, element, key, data = 3, 1, 1, 2
	var lines []string
	err := nfDump(conn, nfGetElement, of, func(all []attribute) error {
		elements, err := attributes(find(all, list))
		for _, e := range elements {
			parts, partsErr := attributes(e.data)
			err = errors.Join(err, partsErr)
			lines = append(lines, fmt.Sprintf("element %x %x %x", find(parts, key), find(parts, data), find(parts, 10)))
		}
		return err
	})
	slices.Sort(lines)
	for _, line := range lines {
		fmt.Fprintln(b, line)
	}
	return err
}

func nfDump(conn *netlink.Conn, message uint16, more []byte, each func([]attribute) error) error {
	family := byte(unix.AF_UNSPEC)
	replies, err := kernel.Dump(conn, netlink.HeaderType(nfSubsystem<<8|message), append([]byte{family, 0, 0, 0}, more...))
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // a kernel without this part
		return nil
	}
	for _, reply := range replies {
		if len(reply.Data) < nfLength {
			return short
		}
		all, attributesErr := attributes(reply.Data[nfLength:])
		if err = errors.Join(err, attributesErr); err == nil {
			err = each(all)
		}
	}
	return err
}

// nfText writes attributes, without those of counters in the expressions of a rule.
func nfText(all []attribute, without ...uint16) string {
	const expressions = 4 // NFTA_RULE_EXPRESSIONS
	for i, a := range all {
		if a.kind != expressions {
			continue
		}
		list, err := attributes(a.data)
		if err != nil || len(list) == 0 {
			continue
		}
		var b bytes.Buffer
		for _, e := range list {
			parts, err := attributes(e.data)
			name := findString(parts, 1)
			if err == nil && name != "" {
				fmt.Fprintf(&b, "%s %x;", name, nfExpression(name, find(parts, 2)))
			} else {
				fmt.Fprintf(&b, "%x;", e.data)
			}
		}
		all[i].data = b.Bytes()
	}
	return text(all, nil, without...)
}

// nfExpression is what an expression was asked to be.
func nfExpression(name string, data []byte) []byte {
	switch name {
	case "counter", "last":
		return nil
	case "quota": // NFTA_QUOTA_BYTES, NFTA_QUOTA_FLAGS
		all, err := attributes(data)
		if err != nil {
			return data
		}
		return append(slices.Clone(find(all, 1)), find(all, 2)...)
	}
	return data
}

// Numbers of include/uapi/linux/netfilter_ipv4/ip_tables.h, which are those of
// ip6_tables.h, too.
const (
	tableInfo    = 64 // IPT_SO_GET_INFO
	tableEntries = 65 // IPT_SO_GET_ENTRIES

	tableName = 32 // XT_TABLE_MAXNAMELEN
)

// A family of iptables, and where an entry has what.
type xtables struct {
	name                      string
	family, level             int
	target, next, end, counts int // offsets: of two lengths, and of the counters
}

var families = []xtables{
	{name: "ip", family: unix.AF_INET, level: unix.SOL_IP, target: 88, next: 90, counts: 96, end: 112},
	{name: "ip6", family: unix.AF_INET6, level: unix.SOL_IPV6, target: 140, next: 142, counts: 152, end: 168},
}

// readIptables writes all rules of tables that are in use.
func readIptables(modules map[string]bool) (string, error) {
	var b strings.Builder
	for _, f := range families {
		names, err := readText("/proc/thread-self/net/" + f.name + "_tables_names")
		if errors.Is(err, unix.ENOENT) {
			continue // no such tables
		}
		tables := strings.Fields(names)
		if errors.Is(err, unix.EACCES) { // only root may read it, but modules tell, too
			if !modules[f.name+"_tables"] {
				return "", errors.New("only root may read which tables a kernel has in use that iptables is built into")
			}
			for _, table := range []string{"raw", "mangle", "nat", "filter", "security"} {
				if modules[f.name+"table_"+table] {
					tables = append(tables, table)
				}
			}
		} else if err != nil {
			return "", err
		}
		slices.Sort(tables)
		for _, table := range tables {
			entries, err := f.read(table)
			if err != nil {
				return "", fmt.Errorf("reading %stable_%s: %w", f.name, table, err)
			}
			fmt.Fprintf(&b, "%s %s %x\n", f.name, table, entries)
		}
	}
	return b.String(), nil
}

// read returns the entries of a table, without their counters.
func (f *xtables) read(table string) ([]byte, error) {
	socket, err := unix.Socket(f.family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return nil, err
	}
	defer unix.Close(socket)
	info := make([]byte, 84) // struct ipt_getinfo
	copy(info[:tableName-1], table)
	if err := getsockopt(socket, f.level, tableInfo, info); err != nil {
		return nil, err
	}
	size := u32(info, 80)
	const head = 40 // struct ipt_get_entries
	entries := make([]byte, head+size)
	copy(entries[:tableName-1], table)
	binary.NativeEndian.PutUint32(entries[tableName:], size)
	if err := getsockopt(socket, f.level, tableEntries, entries); err != nil {
		return nil, err
	}
	entries = entries[head:]
	for e := entries; len(e) >= f.end; {
		next := int(binary.NativeEndian.Uint16(e[f.next:]))
		if next < f.end || next > len(e) {
			return nil, short
		}
		clear(e[f.counts:f.end])
		clear(e[f.next+2 : f.next+6]) // comefrom, of the kernel's own
		e = e[next:]
	}
	return entries, nil
}

func getsockopt(socket, level, option int, b []byte) error {
	length := uint32(len(b))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(socket), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&length)), 0)
	runtime.KeepAlive(b)
	if errno != 0 {
		return errno
	}
	return nil
}
