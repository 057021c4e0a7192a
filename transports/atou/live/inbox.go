package live

import (
	"time"
	"unsafe"

	"dumbbell/traffic/socket"

	"golang.org/x/sys/unix"
)

const (
	controlBytes = 128
	trainBytes   = 1 << 16 // GRO joins datagrams up to it
)

// An inbox takes the datagrams of a socket, many in a system call, and tells
// them one by one.
type inbox struct {
	fd       int
	clock    *clock
	messages []socket.Message
	iovecs   []unix.Iovec
	control  [][controlBytes]byte
	buffer   []byte // one slot for each message
	slot     int    // bytes
	trains   bool   // the kernel joins datagrams

	n, at   int    // messages that have been taken, and how many of them told
	rest    []byte // of the message that is being told
	segment int    // bytes of its datagrams
	arrived time.Duration
	drops   uint32 // of the socket since it was opened, for want of room
}

// newInbox makes an inbox for datagrams of at most slot bytes. With trains the
// kernel joins those that arrive together, if it can.
func newInbox(fd int, clock *clock, messages, slot int, trains bool) (*inbox, error) {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return nil, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1); err != nil {
		return nil, err
	}
	gro := 0
	if trains {
		gro = 1
	}
	trains = unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO, gro) == nil && trains // else they come one by one
	if trains {
		slot = trainBytes
	}
	in := &inbox{
		fd: fd, clock: clock, slot: slot, trains: trains, buffer: make([]byte, messages*slot),
		messages: make([]socket.Message, messages), iovecs: make([]unix.Iovec, messages), control: make([][controlBytes]byte, messages),
	}
	for i := range in.messages {
		in.iovecs[i].Base = &in.buffer[i*slot]
		in.iovecs[i].SetLen(slot)
		in.messages[i].Iov = &in.iovecs[i]
		in.messages[i].SetIovlen(1)
		in.messages[i].Control = &in.control[i][0]
	}
	return in, nil
}

// fill takes what the socket has, once all that was taken has been told, and
// reports whether there was anything. An error is what ICMP told.
func (in *inbox) fill() (bool, error) {
	for i := range in.messages {
		in.messages[i].SetControllen(controlBytes)
	}
	n, err := socket.Take(in.fd, in.messages)
	in.n, in.at = n, 0
	if err == unix.EAGAIN || err == unix.EINTR {
		err = nil
	}
	return n > 0, err
}

// next tells a datagram and when it arrived; false when all have been told. The
// datagram is valid until fill.
func (in *inbox) next() (datagram []byte, at time.Duration, ok bool) {
	for len(in.rest) == 0 {
		if in.at == in.n {
			return nil, 0, false
		}
		in.open(in.at)
		in.at++
	}
	n := min(in.segment, len(in.rest))
	datagram, in.rest = in.rest[:n], in.rest[n:]
	return datagram, in.arrived, true
}

func (in *inbox) open(i int) {
	m := &in.messages[i]
	in.rest = unsafe.Slice(in.iovecs[i].Base, in.slot)[:m.Len]
	told := socket.ParseControl(in.control[i][:m.Controllen])
	in.segment = max(1, len(in.rest))
	if told.Segment > 0 {
		in.segment = told.Segment
	}
	if told.Drops > 0 {
		in.drops = told.Drops
	}
	in.arrived = in.clock.of(told.UnixNs)
}
