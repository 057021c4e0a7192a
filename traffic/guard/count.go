package guard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const (
	// examplesBytes is the buffer of a counter's socket: of its first packets.
	examplesBytes = 16 << 10

	// headersBytes is what is kept of a packet: at most 60 bytes of IP and the ports.
	headersBytes = 64

	// portsAtOnce is how many ports a filter has room for, which net.core.optmem_max limits.
	portsAtOnce = 64

	ipv6Header = 40
	synAck     = 0x12 // both flags of TCP
	syn        = 0x02
)

// A Counter counts the packets of strangers that come to ports of this host:
// datagrams, and SYNs of TCP, repeated ones too. The kernel counts, by packet
// sockets that nobody reads. It needs CAP_NET_RAW.
type Counter struct {
	sockets []int // of IPv4, of IPv6
	found   Strangers
}

// Strangers are what a counter has counted.
type Strangers struct {
	Packets uint64
	First   string // of the packets: its protocol, source and destination; empty if there is none
}

// Count begins to count at ports. Those where anybody may come have no strangers.
func Count(ports []Port) (_ *Counter, err error) {
	c := new(Counter)
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	byProtocol := make(map[uint16][]Port)
	for _, p := range ports {
		protocol := uint16(unix.ETH_P_IPV6)
		if p.Local.Addr().Is4() {
			protocol = unix.ETH_P_IP
		}
		if p.Peer.IsValid() {
			byProtocol[protocol] = append(byProtocol[protocol], p)
		}
	}
	for protocol, all := range byProtocol {
		for some := range slices.Chunk(all, portsAtOnce) {
			if err := c.listen(protocol, some); err != nil {
				return nil, fmt.Errorf("counting strangers: %w", err)
			}
		}
	}
	return c, nil
}

func (c *Counter) listen(protocol uint16, ports []Port) error {
	// Of no protocol, it hears nothing before it has its filter. Of one, it hears what arrives alone.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	c.sockets = append(c.sockets, fd)
	if err := attach(fd, fromStrangers(ports)); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, examplesBytes); err != nil {
		return os.NewSyscallError("setsockopt SO_RCVBUF", err)
	}
	inNetworkOrder := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, protocol))
	return os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: inNetworkOrder}))
}

// Read tells what was counted so far.
func (c *Counter) Read() (Strangers, error) {
	for _, fd := range c.sockets {
		counts, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS) // since it was last asked
		if err != nil {
			return c.found, fmt.Errorf("counting strangers: %w", os.NewSyscallError("getsockopt PACKET_STATISTICS", err))
		}
		c.found.Packets += uint64(counts.Packets) // with those that found no room
		packet := make([]byte, headersBytes)
		if n, _, err := unix.Recvfrom(fd, packet, unix.MSG_DONTWAIT); err == nil && c.found.First == "" {
			c.found.First = describe(packet[:n])
		}
	}
	return c.found, nil
}

// Close ends counting.
func (c *Counter) Close() error {
	var err error
	for _, fd := range c.sockets {
		err = errors.Join(err, unix.Close(fd))
	}
	c.sockets = nil
	return err
}

// describe tells protocol, source and destination of a packet that the filter has let through.
func describe(packet []byte) string {
	at, protocol, from, to := 0, byte(0), netip.Addr{}, netip.Addr{}
	switch {
	case len(packet) >= 20 && packet[0]>>4 == 4:
		at, protocol = int(packet[0]&15)*4, packet[9]
		from, to = netip.AddrFrom4([4]byte(packet[12:16])), netip.AddrFrom4([4]byte(packet[16:20]))
	case len(packet) >= ipv6Header && packet[0]>>4 == 6:
		at, protocol = ipv6Header, packet[6]
		from, to = netip.AddrFrom16([16]byte(packet[8:24])), netip.AddrFrom16([16]byte(packet[24:40]))
	}
	if at == 0 || len(packet) < at+4 {
		return ""
	}
	name := map[byte]string{unix.IPPROTO_TCP: "TCP", unix.IPPROTO_UDP: "UDP"}[protocol]
	fromPort, toPort := binary.BigEndian.Uint16(packet[at:]), binary.BigEndian.Uint16(packet[at+2:])
	return fmt.Sprintf("%s from %v to %v", name, netip.AddrPortFrom(from, fromPort), netip.AddrPortFrom(to, toPort))
}

// fromStrangers takes the headers of datagrams and SYNs to ports, all of one
// version of IP, from others than their peers. Packets begin with their IP
// header. What is sent on after the first fragment has no ports, and is not counted.
func fromStrangers(ports []Port) []bpf.Instruction {
	version, source, destination := layout(ports[0].Local.Addr())
	var program []bpf.Instruction
	add := func(in ...bpf.Instruction) { program = append(program, in...) }
	if version == 4 {
		add(
			bpf.LoadAbsolute{Off: 6, Size: 2},
			bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x1fff, SkipFalse: 1}, // the offset of a fragment
			bpf.RetConstant{Val: drop},
			bpf.LoadMemShift{Off: 0}, // X: where the ports are
			bpf.LoadAbsolute{Off: 9, Size: 1})
	} else {
		add(
			bpf.LoadConstant{Dst: bpf.RegX, Val: ipv6Header},
			bpf.LoadAbsolute{Off: 6, Size: 1})
	}
	add(
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_UDP, SkipTrue: 5},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_TCP, SkipTrue: 3},
		bpf.LoadIndirect{Off: 13, Size: 1},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: synAck},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: syn, SkipTrue: 1},
		bpf.RetConstant{Val: drop})
	// The port, and both addresses word by word, are put where each comparison finds them.
	words := len(addressWords(ports[0].Peer))
	add(bpf.LoadIndirect{Off: 2, Size: 2}, bpf.StoreScratch{Src: bpf.RegA, N: 0})
	for i := range words {
		add(
			bpf.LoadAbsolute{Off: destination + 4*uint32(i), Size: 4}, bpf.StoreScratch{Src: bpf.RegA, N: 1 + i},
			bpf.LoadAbsolute{Off: source + 4*uint32(i), Size: 4}, bpf.StoreScratch{Src: bpf.RegA, N: 1 + words + i})
	}
	for _, p := range ports {
		values := append([]uint32{uint32(p.Local.Port())}, addressWords(p.Local.Addr())...)
		own := len(values) // of those that tell the port, before those of the peer
		values = append(values, addressWords(p.Peer)...)
		for i, value := range values {
			left := 2 * (len(values) - i - 1) // instructions that compare the rest
			if i < own {
				left += 2 // to the next port, past both ends
			} else {
				left++ // to the second end
			}
			add(bpf.LoadScratch{Dst: bpf.RegA, N: i}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: value, SkipTrue: uint8(left)})
		}
		add(bpf.RetConstant{Val: drop}, bpf.RetConstant{Val: headersBytes})
	}
	add(bpf.RetConstant{Val: drop})
	return program
}
