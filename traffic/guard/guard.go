// Package guard keeps strangers from the ports that a run opens: a socket takes
// packets of the host alone that was planned to use it. The kernel drops all
// others before they cost a connection, memory or the time of a program.
package guard

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// A Port is where a server waits, and the only host that may come there.
type Port struct {
	Local netip.AddrPort
	Peer  netip.Addr // invalid: anybody may come
}

// Filter lets a socket of this process take packets of the peer alone. It is a
// classic BPF filter, which every kernel has. A socket that listens applies it
// to SYNs; the connections that it accepts inherit it.
func (p Port) Filter(fd int) error {
	if !p.Peer.IsValid() {
		return nil
	}
	if err := attach(fd, fromPeer(p.Peer)); err != nil {
		return fmt.Errorf("keeping strangers from port %d: %w", p.Local.Port(), err)
	}
	return nil
}

// Control filters a socket before it is bound. It is a Control of
// net.ListenConfig.
func (p Port) Control(_, _ string, raw syscall.RawConn) (err error) {
	controlErr := raw.Control(func(fd uintptr) { err = p.Filter(int(fd)) })
	return errors.Join(controlErr, err)
}

func attach(fd int, program []bpf.Instruction) error {
	assembled, err := bpf.Assemble(program)
	if err != nil {
		return fmt.Errorf("assembling a filter: %w", err)
	}
	return os.NewSyscallError("setsockopt SO_ATTACH_FILTER",
		unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, fprog(assembled)))
}

func fprog(program []bpf.RawInstruction) *unix.SockFprog {
	filter := make([]unix.SockFilter, len(program))
	for i, in := range program {
		filter[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	return &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
}

const (
	drop = 0
	take = math.MaxUint32 // all of the packet
)

// networkHeader is where a filter finds the IP header of what a socket
// receives, which begins with the TCP or UDP header: SKF_NET_OFF, -0x100000.
const networkHeader = 0xfff00000

// fromPeer takes packets with a source address.
func fromPeer(peer netip.Addr) []bpf.Instruction {
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: networkHeader, Size: 1},
		bpf.ALUOpConstant{Op: bpf.ALUOpShiftRight, Val: 4}, // the version of IP
	}
	version, source, _ := layout(peer)
	words := addressWords(peer)
	program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: version, SkipTrue: uint8(2*len(words) + 1)})
	for i, word := range words {
		program = append(program,
			bpf.LoadAbsolute{Off: networkHeader + source + 4*uint32(i), Size: 4},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: word, SkipTrue: uint8(2*(len(words)-i) - 1)})
	}
	return append(program, bpf.RetConstant{Val: take}, bpf.RetConstant{Val: drop})
}

// layout tells the version of IP of an address, and where source and destination are in its header.
func layout(a netip.Addr) (version, source, destination uint32) {
	if a.Is4() {
		return 4, 12, 16
	}
	return 6, 8, 24
}

// addressWords is an address as a filter compares it.
func addressWords(a netip.Addr) (words []uint32) {
	for b := a.AsSlice(); len(b) > 0; b = b[4:] {
		words = append(words, uint32(b[0])<<24|uint32(b[1])<<16|uint32(b[2])<<8|uint32(b[3]))
	}
	return words
}
