package trace

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
)

// A format tells where the fields of an event lie in its record. Kernels
// differ, and say it themselves: events/SYSTEM/NAME/format.
type format struct {
	id      uint16
	fields  map[string]field
	reasons map[int64]string // of the drop of a packet
}

type field struct {
	offset, size int
	signed       bool
}

var (
	fieldLine  = regexp.MustCompile(`(?m)^\tfield:.*?(\w+)(?:\[[^\]]*\])?;\toffset:(\d+);\tsize:(\d+);\tsigned:([01]);`)
	idLine     = regexp.MustCompile(`(?m)^ID: (\d+)$`)
	reasonPart = regexp.MustCompile(`(?s)__print_symbolic\(REC->reason, (.*)`)
	symbol     = regexp.MustCompile(`\{ (\d+), "(\w+)" \}`)
)

func parseFormat(text []byte) (*format, error) {
	id := idLine.FindSubmatch(text)
	if id == nil {
		return nil, fmt.Errorf("a format without an ID: %.40q", text)
	}
	number, err := strconv.ParseUint(string(id[1]), 10, 16)
	if err != nil {
		return nil, fmt.Errorf("a format with ID %s: %w", id[1], err)
	}
	f := &format{id: uint16(number), fields: make(map[string]field), reasons: make(map[int64]string)}
	for _, m := range fieldLine.FindAllSubmatch(text, -1) {
		offset, err := strconv.Atoi(string(m[2]))
		if err != nil {
			return nil, fmt.Errorf("offset of %s: %w", m[1], err)
		}
		size, err := strconv.Atoi(string(m[3]))
		if err != nil {
			return nil, fmt.Errorf("size of %s: %w", m[1], err)
		}
		f.fields[string(m[1])] = field{offset, size, m[4][0] == '1'}
	}
	if part := reasonPart.FindSubmatch(text); part != nil {
		for _, m := range symbol.FindAllSubmatch(part[1], -1) {
			n, err := strconv.ParseInt(string(m[1]), 10, 64)
			if err != nil {
				return nil, fmt.Errorf("number of %s: %w", m[2], err)
			}
			f.reasons[n] = string(m[2])
		}
	}
	return f, nil
}

// integer reads a field of a record, and false where this kernel has none.
func (f *format) integer(record []byte, name string) (int64, bool) {
	at, ok := f.fields[name]
	if !ok {
		return 0, false
	}
	return at.integer(record)
}

func (f field) integer(record []byte) (int64, bool) {
	if f.size == 0 || f.offset+f.size > len(record) {
		return 0, false
	}
	switch b := record[f.offset : f.offset+f.size]; f.size {
	case 1:
		return int64(b[0]), true
	case 2:
		return int64(binary.NativeEndian.Uint16(b)), true
	case 4:
		v := binary.NativeEndian.Uint32(b)
		if f.signed {
			return int64(int32(v)), true
		}
		return int64(v), true
	case 8:
		return int64(binary.NativeEndian.Uint64(b)), true
	}
	return 0, false
}

// address reads one end of a connection: from a struct sockaddr ("saddr" of
// tcp_probe, 28 bytes), or from an address of its family ("saddr", "saddr_v6")
// and a port.
func (f *format) address(record []byte, end string) netip.AddrPort {
	family, _ := f.integer(record, "family")
	at := f.fields[end+"addr"]
	if at.offset+at.size > len(record) {
		return netip.AddrPort{}
	}
	b := record[at.offset : at.offset+at.size]
	if at.size == 28 {
		return addrPort(int64(binary.NativeEndian.Uint16(b)), b[4:], b[8:], binary.BigEndian.Uint16(b[2:]))
	}
	v6 := f.fields[end+"addr_v6"]
	port, ok := f.integer(record, end+"port")
	if !ok || at.size != 4 || v6.size != 16 || v6.offset+v6.size > len(record) {
		return netip.AddrPort{}
	}
	return addrPort(family, b, record[v6.offset:], uint16(port))
}

// addrPort chooses the address of a family, of which an event may say nothing:
// its IPv6 form then holds IPv4 too.
func addrPort(family int64, v4, v6 []byte, port uint16) netip.AddrPort {
	const ipv4 = 2
	if family == ipv4 {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(v4[:4])), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(v6[:16])).Unmap(), port)
}
