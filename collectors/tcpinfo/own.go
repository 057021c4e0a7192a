package tcpinfo

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"dumbbell/collectors/row"

	"golang.org/x/sys/unix"
)

// infoSpace is more than any kernel's struct tcp_info has.
const infoSpace = 1024

// An Own is what the kernel tells a process of its own socket, by getsockopt:
// also when the connection has ended, which INET_DIAG does not find any more.
type Own struct {
	Time              time.Time
	Cookie            uint64
	CongestionControl string
	Info              Info
}

// ReadOwn reads a socket of this process.
func ReadOwn(c syscall.Conn) (s *Own, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	if closed := raw.Control(func(fd uintptr) { s, err = readOwn(int(fd)) }); closed != nil {
		return nil, closed
	}
	return s, err
}

func readOwn(fd int) (*Own, error) {
	s := &Own{Time: time.Now()}
	var err error
	if s.Info, err = readInfo(fd); err != nil {
		return nil, err
	}
	if s.Cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE); err != nil {
		return nil, os.NewSyscallError("getsockopt SO_COOKIE", err)
	}
	if s.CongestionControl, err = unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION); err != nil {
		return nil, os.NewSyscallError("getsockopt TCP_CONGESTION", err)
	}
	return s, nil
}

// readInfo reads struct tcp_info, as long as this kernel has it.
func readInfo(fd int) (Info, error) {
	info := make(Info, infoSpace)
	length := uint32(len(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_INFO,
		uintptr(unsafe.Pointer(&info[0])), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return nil, os.NewSyscallError("getsockopt TCP_INFO", errno)
	}
	return info[:length], nil
}

// AddFields writes what is known of the socket to a row.
func (s *Own) AddFields(rows *row.Rows) {
	s.Info.AddFields(rows)
	rows.Int("cookie", int64(s.Cookie))
	rows.String("congestion_control", s.CongestionControl)
}

// OwnSockets samples sockets of this process, which come and go. It is safe for
// concurrent use; a nil one ignores what it is given.
type OwnSockets struct {
	series row.Series
	mu     sync.Mutex
	open   []syscall.Conn
}

// NewOwnSockets returns a source without sockets.
func NewOwnSockets(tags row.Tags) *OwnSockets {
	return &OwnSockets{series: row.NewSeries("tcp_info", tags)}
}

// Add lets a connected socket be sampled until it is removed.
func (s *OwnSockets) Add(c syscall.Conn) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = append(s.open, c)
}

// Remove ends that, before the socket is closed.
func (s *OwnSockets) Remove(c syscall.Conn) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = slices.DeleteFunc(s.open, func(other syscall.Conn) bool { return other == c })
}

// Sample writes a row for each socket.
func (s *OwnSockets) Sample(rows *row.Rows) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.open {
		own, err := ReadOwn(c)
		if err != nil {
			return fmt.Errorf("sampling a socket of the agent: %w", err)
		}
		rows.Begin(s.series)
		own.AddFields(rows)
		rows.End(own.Time)
	}
	return nil
}

// Close has nothing to release: the sockets are their makers'.
func (s *OwnSockets) Close() error { return nil }
