package gate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"dumbbell/collectors/clock"
	"dumbbell/collectors/tcpinfo"

	"github.com/mdlayher/socket"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// A Tap hears the packets of one connection that carry data out of this host,
// each with the time at which the kernel gave it to a device. Asking for
// TCP_INFO over and over does not tell that time: on a busy host an answer can
// be tens of milliseconds late.
type Tap struct {
	conn *socket.Conn
}

// A PayloadByte is a byte of a datagram, by its place, and the value that it must have.
type PayloadByte struct {
	At    uint32
	Value byte
}

// OpenTap opens a tap for packets with more than the given bytes of payload
// and, of datagrams, with these in it. It needs CAP_NET_RAW.
func OpenTap(protocol tcpinfo.Protocol, tuple tcpinfo.Tuple, moreThan int, with ...PayloadByte) (_ *Tap, err error) {
	// Of no protocol, it hears nothing before it has its filter.
	conn, err := socket.Socket(unix.AF_PACKET, unix.SOCK_DGRAM, 0, "packet", nil)
	if err != nil {
		return nil, fmt.Errorf("opening a packet socket: %w", err)
	}
	defer func() {
		if err != nil {
			conn.Close()
		}
	}()
	filter, err := bpf.Assemble(dataLeaving(protocol, tuple, moreThan, with))
	if err != nil {
		return nil, fmt.Errorf("assembling a filter: %w", err)
	}
	if err := conn.SetBPF(filter); err != nil {
		return nil, err
	}
	if err := conn.SetsockoptInt(unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return nil, err
	}
	all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
	if err := conn.Bind(&unix.SockaddrLinklayer{Protocol: all}); err != nil {
		return nil, err
	}
	return &Tap{conn}, nil
}

// Close ends it.
func (t *Tap) Close() error { return t.conn.Close() }

// Next waits for a packet, and tells when it left.
func (t *Tap) Next(ctx context.Context) (time.Time, error) {
	control := make([]byte, unix.CmsgSpace(16))
	_, n, _, _, err := t.conn.Recvmsg(ctx, make([]byte, 1), control, 0)
	if err != nil {
		return time.Time{}, err
	}
	now := clock.Now()
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil {
		return time.Time{}, fmt.Errorf("reading a packet's time: %w", err)
	}
	for i := range messages {
		if left, ok := clock.KernelStamp(&messages[i].Header, messages[i].Data); ok {
			return now.Add(time.Duration(left - now.UnixNano())), nil // of the monotonic clock, as plans are
		}
	}
	return time.Time{}, errors.New("the kernel gave a packet no time")
}

// dataLeaving is a filter of packets that leave this host on one connection
// with more than the given bytes of payload and, of datagrams, with these in
// it. Addresses are not compared: the ports of a flow are its own.
func dataLeaving(protocol tcpinfo.Protocol, tuple tcpinfo.Tuple, moreThan int, with []PayloadByte) []bpf.Instruction {
	const (
		ipv6Header = 40
		udpHeader  = 8
		other      = 255 // how far the end is, filled in below
	)
	var program []bpf.Instruction
	load := func(from bpf.Instruction) { program = append(program, from) }
	require := func(value uint32) {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: value, SkipTrue: other})
	}

	load(bpf.LoadExtension{Num: bpf.ExtType})
	require(unix.PACKET_OUTGOING)
	version, protocolOffset := uint32(4), uint32(9)
	if tuple.Local.Addr().Unmap().Is6() {
		version, protocolOffset = 6, 6
	}
	load(bpf.LoadAbsolute{Off: 0, Size: 1})
	load(bpf.ALUOpConstant{Op: bpf.ALUOpShiftRight, Val: 4})
	require(version)
	load(bpf.LoadAbsolute{Off: protocolOffset, Size: 1})
	require(uint32(protocol))
	// From here on X is the length of the headers so far.
	if version == 6 {
		load(bpf.LoadConstant{Dst: bpf.RegX, Val: ipv6Header})
	} else {
		load(bpf.LoadMemShift{Off: 0})
	}
	load(bpf.LoadIndirect{Off: 0, Size: 4})
	require(uint32(tuple.Local.Port())<<16 | uint32(tuple.Remote.Port()))
	if protocol == tcpinfo.UDP {
		for _, b := range with {
			load(bpf.LoadIndirect{Off: udpHeader + b.At, Size: 1})
			require(uint32(b.Value))
		}
		load(bpf.LoadConstant{Dst: bpf.RegA, Val: udpHeader})
	} else {
		load(bpf.LoadIndirect{Off: 12, Size: 1}) // the data offset, in the upper half of a byte
		load(bpf.ALUOpConstant{Op: bpf.ALUOpShiftRight, Val: 4})
		load(bpf.ALUOpConstant{Op: bpf.ALUOpShiftLeft, Val: 2})
	}
	load(bpf.ALUOpX{Op: bpf.ALUOpAdd})
	load(bpf.ALUOpConstant{Op: bpf.ALUOpAdd, Val: uint32(moreThan)})
	load(bpf.TAX{})
	load(bpf.LoadExtension{Num: bpf.ExtLen})
	load(bpf.JumpIfX{Cond: bpf.JumpGreaterThan, SkipFalse: 1})
	load(bpf.RetConstant{Val: math.MaxUint16})
	load(bpf.RetConstant{Val: 0})

	end := len(program) - 1
	for i, instruction := range program {
		if jump, ok := instruction.(bpf.JumpIf); ok {
			jump.SkipTrue = uint8(end - i - 1)
			program[i] = jump
		}
	}
	return program
}
