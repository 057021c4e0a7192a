package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A message is struct mmsghdr of sendmmsg(2) and recvmmsg(2).
type message struct {
	unix.Msghdr
	Len uint32
}

func sendMessages(fd int, messages []message) (int, error) {
	return mmsg(unix.SYS_SENDMMSG, fd, messages, 0)
}

// receiveMessages waits for the first datagram and takes what else is there.
func receiveMessages(fd int, messages []message) (int, error) {
	return mmsg(unix.SYS_RECVMMSG, fd, messages, unix.MSG_WAITFORONE)
}

func mmsg(systemCall uintptr, fd int, messages []message, flags uintptr) (int, error) {
	n, _, errno := unix.Syscall6(systemCall, uintptr(fd),
		uintptr(unsafe.Pointer(unsafe.SliceData(messages))), uintptr(len(messages)), flags, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// open makes a UDP socket of the family of an address.
func open(family netip.Addr) (fd int, err error) {
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

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// sleep sleeps for a short time; a signal may cut it short.
func sleep(d time.Duration) {
	ts := unix.NsecToTimespec(d.Nanoseconds())
	unix.Nanosleep(&ts, nil)
}

// threadCPU is the CPU time that this thread has used.
func threadCPU() time.Duration {
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// grow sets the size of a socket buffer: beyond net.core.[rw]mem_max with
// CAP_NET_ADMIN, else up to it. It returns what the kernel granted.
func grow(fd, force, plain, bytes int) (int, error) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, bytes) != nil {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, plain, bytes); err != nil {
			return 0, os.NewSyscallError("setsockopt", err)
		}
	}
	granted, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, plain)
	return granted, os.NewSyscallError("getsockopt", err)
}

func interrupted(err error) bool { return errors.Is(err, unix.EINTR) }
