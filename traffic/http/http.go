// Package http fetches bodies of one size over HTTP/1.1, one after the other.
// For each fetch both ends report what the kernel says of their socket at its
// end: the client when it has the whole body, the server when that has arrived.
package http

import (
	"fmt"
	"net/netip"
	"os"
	"syscall"

	"dumbbell/collectors/tcpinfo"

	"golang.org/x/sys/unix"
)

// A Config is what both ends of a flow know.
type Config struct {
	Server            netip.AddrPort
	Path              string // of the flow; the number of a fetch follows it
	Bytes             int64  // of a body
	CongestionControl string // of the sockets at both ends
	Sockets           *tcpinfo.OwnSockets
}

// check refuses what makes no flow.
func (c Config) check() error {
	if c.Bytes <= 0 {
		return fmt.Errorf("a body has 1 byte or more, not %d", c.Bytes)
	}
	return nil
}

// setCongestionControl prepares a socket before it listens or connects;
// accepted sockets have that of their listener.
func (c Config) setCongestionControl(raw syscall.RawConn) error {
	return setOption(raw, "TCP_CONGESTION "+c.CongestionControl, func(fd int) error {
		return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, c.CongestionControl)
	})
}

func setOption(raw syscall.RawConn, option string, set func(fd int) error) (err error) {
	controlErr := raw.Control(func(fd uintptr) { err = os.NewSyscallError("setsockopt "+option, set(int(fd))) })
	if controlErr != nil {
		return controlErr
	}
	return err
}
