package tcpinfo

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"dumbbell/collectors/kernel"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// atOnce is how many sockets are asked for in one system call. The replies
	// wait in the socket's receive buffer, which holds a hundred by default.
	atOnce = 64

	replyLength = 4096 // of one socket
	dumpLength  = 64 << 10
)

// A Conn is a netlink socket in the network namespace where it was opened.
// It is not safe for concurrent use.
//
// Requests and replies pass in as few system calls as can be, with nothing
// allocated: on a User-Mode Linux host each costs 12 to 50 us.
type Conn struct {
	fd       int // not of Go's poller, which each reply would wake
	sequence uint32
	most     int // sockets that are asked for in one system call

	request  []byte
	start    int // of the message begun last, in the request
	replies  []byte
	one      [1]Tuple
	messages [atOnce]message
	vectors  [atOnce]unix.Iovec
}

// A message is struct mmsghdr.
type message struct {
	header unix.Msghdr
	length uint32
	_      [4]byte
}

// Dial opens a connection to the kernel.
func Dial() (*Conn, error) {
	fd, err := kernel.OpenNetlink(netlinkSockDiag)
	if err != nil {
		return nil, fmt.Errorf("opening a sock_diag socket: %w", err)
	}
	c := &Conn{fd: fd, most: atOnce, replies: make([]byte, max(atOnce*replyLength, dumpLength))}
	for i := range c.vectors {
		c.vectors[i].Base = &c.replies[i*replyLength]
		c.vectors[i].SetLen(replyLength)
		c.messages[i].header.Iov = &c.vectors[i]
		c.messages[i].header.SetIovlen(1)
	}
	return c, nil
}

// Close releases the connection.
func (c *Conn) Close() error { return unix.Close(c.fd) }

// Get reads the socket of an exact tuple into s. The error is ErrNotFound when
// there is no such socket (any more).
func (c *Conn) Get(p Protocol, t Tuple, s *Sample) (err error) {
	c.one[0] = t
	failure := c.GetAll(p, c.one[:], s, func(_ int, e error) { err = e })
	if failure != nil {
		return failure
	}
	return err
}

// GetAll reads the sockets of exact tuples, one after the other, into s. Each
// is called for every tuple, with s or with an error: ErrNotFound when there is
// no such socket (any more).
func (c *Conn) GetAll(p Protocol, tuples []Tuple, s *Sample, each func(i int, err error)) error {
	for first := 0; first < len(tuples); {
		some := tuples[first:min(first+c.most, len(tuples))]
		told, err := c.getSome(p, some, first, s, each)
		first += told
		switch {
		case err == nil:
		case (err == unix.ENOBUFS || err == unix.EAGAIN) && len(some) > 1:
			// The socket has no room for so many replies (net.core.rmem_default): the rest is asked for again.
			c.drain()
			c.most = (len(some) + 1) / 2
		default:
			c.drain()
			return fmt.Errorf("asking for %d %v sockets: %w", len(some), p, err)
		}
	}
	return nil
}

// getSome tells how many of the tuples, from the first on, it has called each for.
func (c *Conn) getSome(p Protocol, tuples []Tuple, first int, s *Sample, each func(i int, err error)) (told int, err error) {
	base := c.sequence + 1
	c.sequence += uint32(len(tuples))
	c.request = c.request[:0]
	for i, t := range tuples {
		c.putHeader(sockDiagByFamily, netlink.Request, base+uint32(i))
		c.putTuple(p, t)
		c.putEnd()
	}
	began := time.Now()
	if err := c.write(); err != nil {
		return 0, err
	}
	// The kernel has replied to all before write returns, in their order: each
	// is at most half of that time away from its middle.
	s.Time = began.Add(time.Since(began) / 2)
	for told < len(tuples) {
		n, err := c.readMany(len(tuples) - told)
		if err != nil {
			return told, err
		}
		for k := range n {
			reply := c.replies[k*replyLength:][:min(int(c.messages[k].length), replyLength)]
			h, payload, _, err := cutMessage(reply)
			if err != nil {
				return told, err
			}
			if h.sequence-base != uint32(told) {
				return told, unix.ENOBUFS // the reply before it is missing
			}
			each(first+told, s.found(h, payload, p, tuples[told]))
			told++
		}
	}
	return told, nil
}

// found decodes the reply to an exact request. One whose socket is gone is
// answered with the listener of its local port.
func (s *Sample) found(h header, payload []byte, p Protocol, t Tuple) error {
	err := h.failure(payload)
	if err == unix.ENOENT {
		return ErrNotFound
	}
	if err == nil {
		err = s.decode(payload)
	}
	if err != nil {
		return fmt.Errorf("%v socket %v: %w", p, t, err)
	}
	if s.Tuple != t || p == TCP && len(s.Info) == 0 {
		return ErrNotFound
	}
	return nil
}

// Dump reads all TCP sockets that carry data and pass the filter, IPv4 and
// IPv6, into s, one after the other.
func (c *Conn) Dump(f Filter, s *Sample, each func()) error {
	c.sequence++
	c.request = c.request[:0]
	c.putHeader(dumpBothFamilies, netlink.Request|netlink.Dump, c.sequence)
	request := c.grow(dumpRequestLength)
	request[3] = extensions
	binary.NativeEndian.PutUint32(request[52:], connected)
	if code := f.bytecode(); len(code) > 0 {
		c.putAttribute(requestBytecode, code)
	}
	c.putEnd()
	err := c.dump(s, func() {
		if len(s.Info) > 0 && f.passes(s) {
			each()
		}
	})
	if err != nil {
		return fmt.Errorf("listing TCP sockets: %w", err)
	}
	return nil
}

// dump sends the request and decodes all sockets of the answer.
func (c *Conn) dump(s *Sample, each func()) error {
	err := c.dumpAll(s, each)
	if err != nil {
		c.drain() // the kernel begins no other dump before this one has ended
	}
	return err
}

func (c *Conn) dumpAll(s *Sample, each func()) error {
	if err := c.write(); err != nil {
		return err
	}
	// The kernel fills the next part of its answer when it has handed over the
	// one before.
	filled := time.Now()
	for {
		b, err := c.read(0)
		if err != nil {
			return err
		}
		s.Time = filled
		filled = time.Now()
		for len(b) > 0 {
			var (
				h       header
				payload []byte
			)
			if h, payload, b, err = cutMessage(b); err == nil {
				err = h.failure(payload)
			}
			if err != nil {
				return err
			}
			if h.kind == netlink.Done {
				return nil
			}
			if err := s.decode(payload); err != nil {
				return err
			}
			each()
		}
	}
}

// drain reads what is left of replies to a request that failed.
func (c *Conn) drain() {
	for {
		if _, err := c.read(unix.MSG_DONTWAIT); err != nil && err != unix.ENOBUFS {
			return
		}
	}
}

// Length is that of this kernel's struct tcp_info.
func Length() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("asking for the length of tcp_info: %w", err)
	}
	defer unix.Close(fd)
	info, err := readInfo(fd)
	if err != nil {
		return 0, fmt.Errorf("asking for the length of tcp_info: %w", err)
	}
	return len(info), nil
}

// Available reports whether the kernel can be asked about a protocol: where
// its module is missing, an exact request would only ever say "not found".
func (c *Conn) Available(p Protocol) error {
	c.sequence++
	c.request = c.request[:0]
	c.putHeader(sockDiagByFamily, netlink.Request|netlink.Dump, c.sequence)
	request := c.grow(requestLength) // of the sockets in no state at all
	request[0], request[1] = familyIPv4, byte(p)
	c.putEnd()
	if err := c.dump(new(Sample), func() {}); err != nil {
		return fmt.Errorf("the kernel offers no socket diagnostics for %v (module %v_diag): %w", p, p, err)
	}
	return nil
}

// putHeader begins a message, which putEnd ends.
func (c *Conn) putHeader(kind uint16, flags netlink.HeaderFlags, sequence uint32) {
	c.start = len(c.request)
	h := c.grow(headerLength)
	binary.NativeEndian.PutUint16(h[4:], kind)
	binary.NativeEndian.PutUint16(h[6:], uint16(flags))
	binary.NativeEndian.PutUint32(h[8:], sequence)
}

func (c *Conn) putEnd() {
	binary.NativeEndian.PutUint32(c.request[c.start:], uint32(len(c.request)-c.start))
}

func (c *Conn) putAttribute(kind uint16, data []byte) {
	a := c.grow(4 + (len(data)+3)&^3)
	binary.NativeEndian.PutUint16(a, uint16(4+len(data)))
	binary.NativeEndian.PutUint16(a[2:], kind)
	copy(a[4:], data)
}

// putTuple appends struct inet_diag_req_v2.
func (c *Conn) putTuple(p Protocol, t Tuple) {
	if p == UDP {
		t = t.Mirror() // udp_dump_one looks a socket up as an arriving packet would: from its peer
	}
	r := c.grow(requestLength)
	r[0] = familyIPv4
	if t.Local.Addr().Is6() {
		r[0] = familyIPv6
	}
	r[1] = byte(p)
	r[2] = extensions
	binary.NativeEndian.PutUint32(r[4:], connected)
	binary.BigEndian.PutUint16(r[8:], t.Local.Port())
	binary.BigEndian.PutUint16(r[10:], t.Remote.Port())
	putAddr(r[12:28], t.Local.Addr())
	putAddr(r[28:44], t.Remote.Addr())
	binary.NativeEndian.PutUint64(r[48:], 1<<64-1) // INET_DIAG_NOCOOKIE
}

func putAddr(b []byte, a netip.Addr) {
	if a.Is4() {
		a4 := a.As4()
		copy(b, a4[:])
		return
	}
	a16 := a.As16()
	copy(b, a16[:])
}

// grow appends n zero bytes to the request and returns them.
func (c *Conn) grow(n int) []byte {
	c.request = append(c.request, make([]byte, n)...)
	return c.request[len(c.request)-n:]
}

// The kernel answers within write, and reading does not wait: no need to tell
// Go's scheduler of these calls, which would cost more than they do.

func (c *Conn) write() error {
	_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(c.fd), uintptr(unsafe.Pointer(&c.request[0])), uintptr(len(c.request)))
	if errno != 0 {
		return errno
	}
	return nil
}

// read returns what the kernel sends next, valid until the next call.
func (c *Conn) read(flags uintptr) ([]byte, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(c.fd), uintptr(unsafe.Pointer(&c.replies[0])), dumpLength, flags, 0, 0)
	if errno != 0 {
		return nil, errno
	}
	return c.replies[:n], nil
}

// readMany receives up to n replies, each into a buffer of its own.
func (c *Conn) readMany(n int) (int, error) {
	r, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(c.fd), uintptr(unsafe.Pointer(&c.messages[0])), uintptr(n), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(r), nil
}

// A header is the part of struct nlmsghdr that matters.
type header struct {
	kind     netlink.HeaderType
	sequence uint32
}

// cutMessage splits the first netlink message off b.
func cutMessage(b []byte) (h header, payload, rest []byte, err error) {
	if len(b) < headerLength {
		return h, nil, nil, fmt.Errorf("%d bytes where a netlink message should start", len(b))
	}
	length := int(binary.NativeEndian.Uint32(b))
	if length < headerLength || length > len(b) {
		return h, nil, nil, fmt.Errorf("a netlink message has length %d of %d bytes", length, len(b))
	}
	h = header{netlink.HeaderType(binary.NativeEndian.Uint16(b[4:])), binary.NativeEndian.Uint32(b[8:])}
	return h, b[headerLength:length], b[min((length+3)&^3, len(b)):], nil
}

// failure is the error that a message tells of, or nil. That of a dump comes with its end.
func (h header) failure(payload []byte) error {
	if (h.kind == netlink.Error || h.kind == netlink.Done) && len(payload) >= 4 {
		if code := -int32(binary.NativeEndian.Uint32(payload)); code != 0 {
			return unix.Errno(code)
		}
	}
	return nil
}
