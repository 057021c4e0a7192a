// Package http fetches bodies over HTTP/1.1: of one size, one after the other,
// or each of its own size and at its own time. For each fetch both ends report
// what the kernel says of their socket at its end: the client when it has the
// whole body, the server when that has arrived.
package http

import (
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"time"

	"dumbbell/collectors/tcpinfo"

	"golang.org/x/sys/unix"
)

// A Config is what both ends of a flow know.
type Config struct {
	Server            netip.AddrPort
	Path              string // of the flow; the number of a fetch follows it
	Bytes             int64  // of a body; 0 with transfers
	Transfers         []Transfer
	CongestionControl string // of the sockets at both ends
	Sockets           *tcpinfo.OwnSockets
}

// A Transfer is a fetch of a flow whose fetches do not wait for each other.
type Transfer struct {
	At    time.Duration `json:"at_ns"` // from the flow's start
	Bytes int64         `json:"bytes"` // of its body
}

// check refuses what makes no flow.
func (c Config) check() error {
	if c.Transfers == nil && c.Bytes <= 0 {
		return fmt.Errorf("a body has 1 byte or more, not %d", c.Bytes)
	}
	return CheckTransfers(c.Transfers)
}

// CheckTransfers refuses transfers that are empty, or not in order of time.
func CheckTransfers(all []Transfer) error {
	before := time.Duration(0)
	for i, t := range all {
		if t.Bytes <= 0 || t.At < before {
			return fmt.Errorf("transfer %d, of %d bytes after %v, is empty or not in order of time", i+1, t.Bytes, t.At)
		}
		before = t.At
	}
	return nil
}

// bytes is the size of the body of a fetch, by its number from 1; false if
// there is no such fetch.
func (c Config) bytes(number int) (int64, bool) {
	if c.Transfers == nil {
		return c.Bytes, true
	}
	if number < 1 || number > len(c.Transfers) {
		return 0, false
	}
	return c.Transfers[number-1].Bytes, true
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
