// Package tcp sends data over TCP, and discards it, with few system calls: one
// hands to the kernel, or takes from it, all there is until the next second.
// Within the call the kernel waits, and is woken by each ACK or segment, as it
// is for a program that writes and reads all the time. TCP sees no difference,
// and what a program costs, entering the kernel, is almost gone.
package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"dumbbell/traffic/guard"
	"dumbbell/traffic/socket"

	"golang.org/x/sys/unix"
)

// HeaderBytes is how long the header of a stream is, which its data begins with.
const HeaderBytes = 16

// interval is how long a system call takes at most, and that of the counts of both ends.
const interval = time.Second

// A Config is what an end of a flow knows; both ends have the same, except the
// sizes of their sockets' buffers.
type Config struct {
	Sender   netip.AddrPort // of the first stream; the others have the ports that follow
	Receiver netip.AddrPort
	Streams  int
	Token    uint64 // tells the flow's streams from those of any other run
	Options
}

// Options are those of the sockets of an end. What is zero is the kernel's choice.
type Options struct {
	CongestionControl string
	PacingBps         int64 // of each stream, at the sender
	MSS               int   // with the options of a segment
	SendBuffer        int64 // SO_SNDBUF
	ReceiveBuffer     int64 // SO_RCVBUF
	DSCP              int
	NoDelay           bool
}

// check refuses what makes no flow.
func (c Config) check() error {
	if c.Streams < 1 || int(c.Sender.Port())+c.Streams-1 > 65535 {
		return fmt.Errorf("%d streams from port %d on: a flow has at least one, and ports up to 65535", c.Streams, c.Sender.Port())
	}
	return nil
}

// header is what the data of a stream begins with.
func (c Config) header(stream int) [HeaderBytes]byte {
	var h [HeaderBytes]byte
	binary.BigEndian.PutUint64(h[:], c.Token)
	binary.BigEndian.PutUint64(h[8:], uint64(stream))
	return h
}

// open makes a socket with the flow's options, and binds it. If a peer is given,
// it takes packets of no other host.
func (c Config) open(local netip.AddrPort, peer netip.Addr) (fd int, err error) {
	domain := unix.AF_INET
	if local.Addr().Is6() {
		domain = unix.AF_INET6
	}
	fd, err = unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	err = errors.Join(os.NewSyscallError("setsockopt SO_REUSEADDR", err), c.set(fd, local.Addr()), guard.Port{Local: local, Peer: peer}.Filter(fd))
	if err != nil {
		return -1, err
	}
	if err := unix.Bind(fd, socket.Sockaddr(local)); err != nil {
		return -1, fmt.Errorf("binding to %v: %w", local, err)
	}
	return fd, nil
}

// set sets the options of a socket before it connects or listens; accepted
// sockets have those of their listener.
func (o Options) set(fd int, address netip.Addr) error {
	ip, class := unix.IPPROTO_IP, unix.IP_TOS
	if address.Is6() {
		ip, class = unix.IPPROTO_IPV6, unix.IPV6_TCLASS
	}
	noDelay := 0
	if o.NoDelay {
		noDelay = 1
	}
	for _, option := range []struct {
		name                 string
		level, number, value int
	}{
		{"SO_SNDBUF", unix.SOL_SOCKET, unix.SO_SNDBUF, int(o.SendBuffer)},
		{"SO_RCVBUF", unix.SOL_SOCKET, unix.SO_RCVBUF, int(o.ReceiveBuffer)},
		{"TCP_MAXSEG", unix.IPPROTO_TCP, unix.TCP_MAXSEG, o.MSS},
		{"TCP_NODELAY", unix.IPPROTO_TCP, unix.TCP_NODELAY, noDelay},
		{"IP_TOS", ip, class, o.DSCP << 2},
	} {
		if option.value == 0 {
			continue
		}
		if err := unix.SetsockoptInt(fd, option.level, option.number, option.value); err != nil {
			return fmt.Errorf("setsockopt %s %d: %w", option.name, option.value, err)
		}
	}
	if o.PacingBps > 0 {
		if err := unix.SetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, uint64(o.PacingBps/8)); err != nil {
			return fmt.Errorf("setsockopt SO_MAX_PACING_RATE %d: %w", o.PacingBps/8, err)
		}
	}
	if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, o.CongestionControl); err != nil {
		return fmt.Errorf("setsockopt TCP_CONGESTION %s: %w", o.CongestionControl, err)
	}
	return nil
}

// A Stream is what both ends tell of one connection. Of its socket it has what
// the kernel told before the data.
type Stream struct {
	Bytes             int64  `json:"bytes"`         // handed to the kernel, or taken from it
	FirstUnixNs       int64  `json:"first_unix_ns"` // before the first was handed over, or when it had come
	LastUnixNs        int64  `json:"last_unix_ns"`  // when the sender stopped, or the receiver got the last or saw the end
	Calls             int64  `json:"calls"`         // of the kernel, for data
	CongestionControl string `json:"congestion_control"`
	MSS               int    `json:"mss_bytes"` // of data, without the options of a segment
	SendBuffer        int    `json:"send_buffer_bytes"`
	ReceiveBuffer     int    `json:"receive_buffer_bytes"`
	DSCP              int    `json:"dscp"`
	NoDelay           bool   `json:"no_delay"`
}

// read reads the options of a connected socket back.
func (s *Stream) read(fd int, address netip.Addr) (err error) {
	ip, class := unix.IPPROTO_IP, unix.IP_TOS
	if address.Is6() {
		ip, class = unix.IPPROTO_IPV6, unix.IPV6_TCLASS
	}
	var noDelay int
	for _, option := range []struct {
		level, number int
		value         *int
	}{
		{unix.SOL_SOCKET, unix.SO_SNDBUF, &s.SendBuffer},
		{unix.SOL_SOCKET, unix.SO_RCVBUF, &s.ReceiveBuffer},
		{unix.IPPROTO_TCP, unix.TCP_MAXSEG, &s.MSS},
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, &noDelay},
		{ip, class, &s.DSCP},
	} {
		if *option.value, err = unix.GetsockoptInt(fd, option.level, option.number); err != nil {
			return os.NewSyscallError("getsockopt", err)
		}
	}
	s.DSCP >>= 2
	s.NoDelay = noDelay != 0
	s.CongestionControl, err = unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	return os.NewSyscallError("getsockopt TCP_CONGESTION", err)
}

// intervals count the bytes of each second since the planned start. Those of a
// call are in the second in which it began.
type intervals []int64

func (all *intervals) add(since time.Duration, n int) {
	i := max(0, int(since/interval))
	for len(*all) <= i {
		*all = append(*all, 0)
	}
	(*all)[i] += int64(n)
}

// sum adds those of several streams.
func sum(streams []intervals) intervals {
	total := intervals{}
	for _, of := range streams {
		for i, n := range of {
			total.add(time.Duration(i)*interval, int(n))
		}
	}
	return total
}

// toBoundary is the time from a moment since the start to the end of its interval.
func toBoundary(since time.Duration) time.Duration {
	if since < 0 {
		return -since
	}
	return interval - since%interval
}

// setTimeout sets SO_SNDTIMEO or SO_RCVTIMEO, at least a microsecond: 0 would be for ever.
func setTimeout(fd, option int, d time.Duration) error {
	timeout := unix.NsecToTimeval(max(d, time.Microsecond).Nanoseconds())
	return os.NewSyscallError("setsockopt SO_SNDTIMEO or SO_RCVTIMEO", unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &timeout))
}

// notYet reports whether a call ended without data for its time was over, or by a signal.
func notYet(err error) bool { return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) }

// reset ends a connection at once.
func reset(fd int) error {
	unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	return unix.Close(fd)
}
