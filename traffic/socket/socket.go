// Package socket has what the senders and receivers of this project need of
// UDP sockets beyond package net: many datagrams in one system call, nothing
// allocated for any of them, and buffers of the size that is asked.
package socket

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"
	"unsafe"

	"dumbbell/collectors/clock"

	"golang.org/x/sys/unix"
)

// A Message is struct mmsghdr of sendmmsg(2) and recvmmsg(2).
type Message struct {
	unix.Msghdr
	Len uint32
}

// Receive waits for the first datagram and takes what else is there.
func Receive(fd int, messages []Message) (int, error) {
	return mmsg(unix.SYS_RECVMMSG, fd, messages, unix.MSG_WAITFORONE)
}

func mmsg(systemCall uintptr, fd int, messages []Message, flags uintptr) (int, error) {
	n, _, errno := unix.Syscall6(systemCall, uintptr(fd),
		uintptr(unsafe.Pointer(unsafe.SliceData(messages))), uintptr(len(messages)), flags, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// Take takes the datagrams that are there, and fails with EAGAIN if there are
// none.
func Take(fd int, messages []Message) (int, error) {
	return mmsgNow(unix.SYS_RECVMMSG, fd, messages)
}

// mmsgNow does not wait, so Go's scheduler is not told of it.
func mmsgNow(systemCall uintptr, fd int, messages []Message) (int, error) {
	n, _, errno := unix.RawSyscall6(systemCall, uintptr(fd),
		uintptr(unsafe.Pointer(unsafe.SliceData(messages))), uintptr(len(messages)), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// Arrived is what the kernel tells of a message that it gave; what it does not
// tell is 0.
type Arrived struct {
	UnixNs  int64  // with SO_TIMESTAMPNS
	Segment int    // bytes of each of the datagrams that GRO joined
	Drops   uint32 // of the socket since it was opened, for want of room; with SO_RXQ_OVFL
}

// ParseControl reads the control messages of a message.
func ParseControl(control []byte) (told Arrived) {
	for len(control) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			break
		}
		if stamp, ok := clock.KernelStamp(&h, data); ok {
			told.UnixNs = stamp
		}
		switch {
		case h.Level == unix.SOL_SOCKET && h.Type == unix.SO_RXQ_OVFL && len(data) >= 4:
			told.Drops = binary.NativeEndian.Uint32(data)
		case h.Level == unix.SOL_UDP && h.Type == unix.UDP_GRO && len(data) >= 4:
			told.Segment = int(binary.NativeEndian.Uint32(data))
		}
		control = rest
	}
	return told
}

// Open makes a UDP socket of the family of an address.
func Open(family netip.Addr) (fd int, err error) {
	domain := unix.AF_INET
	if !family.Is4() {
		domain = unix.AF_INET6
	}
	fd, err = unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		return -1, fmt.Errorf("making a UDP socket: %w", err)
	}
	return fd, nil
}

// Sockaddr is an address as x/sys/unix has it.
func Sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	s := &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	if i, err := net.InterfaceByName(a.Addr().Zone()); err == nil {
		s.ZoneId = uint32(i.Index)
	}
	return s
}

// AddrPort is the reverse of Sockaddr, but for zones, which become numbers.
func AddrPort(s unix.Sockaddr) netip.AddrPort {
	switch s := s.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(s.Addr), uint16(s.Port))
	case *unix.SockaddrInet6:
		a := netip.AddrFrom16(s.Addr)
		if s.ZoneId != 0 {
			if i, err := net.InterfaceByIndex(int(s.ZoneId)); err == nil {
				a = a.WithZone(i.Name)
			}
		}
		return netip.AddrPortFrom(a, uint16(s.Port))
	}
	return netip.AddrPort{}
}

// LocalAddr is the address of a socket.
func LocalAddr(fd int) (netip.AddrPort, error) {
	s, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, os.NewSyscallError("getsockname", err)
	}
	return AddrPort(s), nil
}

// ReportErrors lets the kernel report of a socket that the host's own queue
// refused a datagram, which it hides otherwise, and what ICMP says.
func ReportErrors(fd int, family netip.Addr) error {
	level, option := unix.IPPROTO_IP, unix.IP_RECVERR
	if !family.Is4() {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVERR
	}
	if err := unix.SetsockoptInt(fd, level, option, 1); err != nil {
		return fmt.Errorf("asking for local errors: %w", err)
	}
	return nil
}

// SetSendBuffer sets the size of a socket's buffer as SetReceiveBuffer does.
func SetSendBuffer(fd, bytes int) (int, error) {
	return grow(fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, bytes)
}

// SetReceiveBuffer sets the size of a socket's buffer: beyond
// net.core.rmem_max with CAP_NET_ADMIN, else up to it. It returns what the
// kernel granted: twice as much, for its own overhead.
func SetReceiveBuffer(fd, bytes int) (int, error) {
	return grow(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, bytes)
}

func grow(fd, force, plain, bytes int) (int, error) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, bytes) != nil {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, plain, bytes); err != nil {
			return 0, os.NewSyscallError("setsockopt", err)
		}
	}
	granted, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, plain)
	return granted, os.NewSyscallError("getsockopt", err)
}

// ExactTimers lets the kernel wake this thread, which must be locked, when it
// asks for, not up to 50 us later, and returns what undoes it.
func ExactTimers() (undo func()) {
	slack, _, errno := unix.Syscall6(unix.SYS_PRCTL, unix.PR_GET_TIMERSLACK, 0, 0, 0, 0, 0)
	if errno == 0 && unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) == nil {
		return func() { unix.Prctl(unix.PR_SET_TIMERSLACK, slack, 0, 0, 0) }
	}
	return func() {}
}

// ThreadCPU is the CPU time that this thread has used.
func ThreadCPU() time.Duration {
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
