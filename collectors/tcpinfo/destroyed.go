package tcpinfo

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	groupTCP4 = 1 // SKNLGRP_INET_TCP_DESTROY of include/uapi/linux/sock_diag.h
	groupTCP6 = 3 // SKNLGRP_INET6_TCP_DESTROY

	// receiveBuffer holds what the kernel sends while this process waits for a
	// CPU. It charges about 2.3 kB a message.
	receiveBuffer = 8 << 20

	// keep bounds the memory for sockets that ended and were not yet asked for.
	keep = 1 << 16
)

// Destroyed receives the last state of each TCP socket that the kernel
// destroys in this network namespace, which a sampler sees of no socket and of
// a short one nothing at all. Its methods may be called at any time.
type Destroyed struct {
	netlink *netlink.Conn
	raw     syscall.RawConn // the same
	wanted  func(*Sample) bool
	done    chan struct{}

	mu     sync.Mutex
	buffer []byte // for a message
	ended  []Sample
	lost   int64 // of those that were received
}

// DialDestroyed begins to receive. Of the sockets those are kept that wanted
// says; it must not keep its argument.
func DialDestroyed(wanted func(*Sample) bool) (*Destroyed, error) {
	n, err := netlink.Dial(netlinkSockDiag, nil)
	if err != nil {
		return nil, fmt.Errorf("opening a sock_diag socket: %w", err)
	}
	fail := func(err error) (*Destroyed, error) {
		return nil, errors.Join(fmt.Errorf("listening for destroyed sockets: %w", err), n.Close())
	}
	for _, group := range []uint32{groupTCP4, groupTCP6} {
		if err := n.JoinGroup(group); err != nil {
			return fail(err)
		}
	}
	raw, err := n.SyscallConn()
	if err != nil {
		return fail(err)
	}
	if err := raw.Control(func(fd uintptr) {
		if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) != nil { // needs CAP_NET_ADMIN
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
		}
	}); err != nil {
		return fail(err)
	}
	d := &Destroyed{netlink: n, raw: raw, wanted: wanted, buffer: make([]byte, replyLength), done: make(chan struct{})}
	go func() {
		defer close(d.done)
		raw.Read(func(fd uintptr) bool { d.read(fd); return false }) // until it is closed
	}()
	return d, nil
}

// Receive reads all that the kernel has told, of which the goroutine may have
// read nothing yet.
func (d *Destroyed) Receive() { d.raw.Control(d.read) }

func (d *Destroyed) read(fd uintptr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		length, err := unix.Read(int(fd), d.buffer)
		switch err {
		case nil:
			d.add(d.buffer[:length], time.Now())
		case unix.ENOBUFS: // the kernel had to leave some out, and has counted them
		default: // there is no more
			return
		}
	}
}

// add keeps the socket of a message if it is wanted.
func (d *Destroyed) add(message []byte, now time.Time) {
	s := Sample{Time: now}
	_, payload, _, err := cutMessage(message)
	if err == nil {
		err = s.decode(payload)
	}
	switch {
	case err == nil && (len(s.Info) == 0 || !d.wanted(&s)):
	case err != nil || len(d.ended) == keep:
		d.lost++
	default:
		s.Info = append(Info(nil), s.Info...)
		d.ended = append(d.ended, s)
	}
}

// Take returns the sockets that have ended since it was last called.
func (d *Destroyed) Take() []Sample {
	d.mu.Lock()
	defer d.mu.Unlock()
	ended := d.ended
	d.ended = nil
	return ended
}

// Lost counts the sockets whose end could not be received, of any connection in
// this network namespace.
func (d *Destroyed) Lost() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lost + int64(d.drops())
}

// drops counts the messages for which the socket had no room.
func (d *Destroyed) drops() uint32 {
	var memory [unix.SK_MEMINFO_VARS]uint32
	length := uint32(unsafe.Sizeof(memory))
	d.raw.Control(func(fd uintptr) { // a socket that is open cannot refuse
		unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_MEMINFO,
			uintptr(unsafe.Pointer(&memory)), uintptr(unsafe.Pointer(&length)), 0)
	})
	return memory[unix.SK_MEMINFO_DROPS]
}

// Close stops receiving.
func (d *Destroyed) Close() error {
	err := d.netlink.Close()
	<-d.done
	return err
}
