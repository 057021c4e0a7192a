package socket

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// MaxDatagram is the largest payload that IPv4 carries in one datagram.
	MaxDatagram = 65535 - 20 - 8

	maxTrain = 64 // datagrams: UDP_MAX_SEGMENTS
)

// A Batch gathers datagrams of a connected socket, all of one size but for the
// last, which may be shorter, and sends them. Datagrams of one size make
// trains: messages that the kernel or the device divides (UDP GSO).
type Batch struct {
	// GSO says that trains are sent. It is false where the kernel has no UDP GSO,
	// and from when it first refuses a train.
	GSO bool

	fd     int
	wait   bool
	most   int // datagrams in the batch
	train  int // datagrams in a train at most
	buffer []byte
	n      int // datagrams
	used   int // bytes
	size   int // bytes of the first datagram
	short  bool
	sent   int // datagrams that have left

	messages []Message // of one call
	iovecs   []unix.Iovec
	control  [24]byte // CMSG_SPACE(2), of all trains
}

// NewTrain returns a batch of at most one train of datagrams of at most largest
// bytes or, without trains, of one datagram. Send does not wait for room in the
// socket's buffer, and sends one message with each system call, so that no
// error is lost.
func NewTrain(fd, largest int, trains bool) *Batch {
	most := 1
	if trains {
		most = max(1, min(maxTrain, MaxDatagram/largest))
	}
	return newBatch(fd, largest, most, 1)
}

// NewBatch returns a batch of at most most datagrams of at most largest bytes.
// Send waits for room in the socket's buffer, and sends as many messages with a
// system call as there are.
func NewBatch(fd, largest, most int) *Batch {
	b := newBatch(fd, largest, most, most)
	b.wait = true
	return b
}

func newBatch(fd, largest, most, messages int) *Batch {
	b := &Batch{
		fd: fd, most: most, train: max(1, min(maxTrain, MaxDatagram/largest, most)), buffer: make([]byte, most*largest),
		messages: make([]Message, messages), iovecs: make([]unix.Iovec, messages),
	}
	for i := range b.messages {
		b.messages[i].Iov = &b.iovecs[i]
		b.messages[i].SetIovlen(1)
	}
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b.control[0]))
	h.Level, h.Type = unix.SOL_UDP, unix.UDP_SEGMENT
	h.SetLen(unix.CmsgLen(2))
	// A kernel without the option would send a train as one datagram.
	b.GSO = b.train > 1 && unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, 0) == nil
	return b
}

// Len is the number of datagrams that have not left.
func (b *Batch) Len() int { return b.n - b.sent }

// Full says that the batch takes no more.
func (b *Batch) Full() bool { return b.n == b.most || b.short }

// Place is where the next datagram is to be written. The batch must not be full.
func (b *Batch) Place() []byte { return b.buffer[b.used:] }

// Add takes a datagram of so many bytes that was written to its place. It
// reports false for one that does not go into this batch: it is longer than the
// others. Nothing is added then.
func (b *Batch) Add(bytes int) bool {
	switch {
	case b.n == 0:
		b.size = bytes
	case bytes > b.size:
		return false
	}
	b.short = bytes < b.size
	b.n++
	b.used += bytes
	return true
}

// Clear forgets the batch.
func (b *Batch) Clear() { b.n, b.used, b.sent, b.short = 0, 0, 0, false }

// Drop forgets the message that Send has just failed to send, and tells how
// many datagrams that were: a train, or one.
func (b *Batch) Drop() int {
	n := b.next()
	b.left(n)
	return n
}

// Send sends what is in the batch, and forgets what has left. After an error it
// may be called again. What ICMP told of an earlier datagram is an error too.
func (b *Batch) Send() error {
	for b.sent < b.n {
		datagrams := b.next()
		n, err := b.send(b.fill(datagrams))
		b.left(min(n*datagrams, b.n-b.sent))
		// Without checksum offload, or with datagrams that have to be fragmented, there are no trains.
		if datagrams > 1 && (err == unix.EIO || err == unix.EINVAL || err == unix.EMSGSIZE) {
			b.GSO = false
		} else if err != nil {
			return err
		}
	}
	return nil
}

// next is the number of datagrams in the next message.
func (b *Batch) next() int {
	if b.GSO {
		return min(b.train, b.n-b.sent)
	}
	return min(1, b.n-b.sent)
}

// left forgets datagrams that have left.
func (b *Batch) left(datagrams int) {
	if b.sent += datagrams; b.sent == b.n {
		b.Clear()
	}
}

// fill divides what has not left into messages of so many datagrams, the last
// of which may have fewer.
func (b *Batch) fill(datagrams int) []Message {
	binary.NativeEndian.PutUint16(b.control[unix.CmsgLen(0):], uint16(b.size))
	count := 0
	for from, step := b.sent*b.size, datagrams*b.size; from < b.used && count < len(b.messages); from += step {
		m, bytes := &b.messages[count], min(step, b.used-from)
		b.iovecs[count].Base = &b.buffer[from]
		b.iovecs[count].SetLen(bytes)
		m.Control = nil
		m.SetControllen(0)
		if bytes > b.size {
			m.Control = &b.control[0]
			m.SetControllen(len(b.control))
		}
		count++
	}
	return b.messages[:count]
}

func (b *Batch) send(messages []Message) (int, error) {
	if b.wait {
		return mmsg(unix.SYS_SENDMMSG, b.fd, messages, 0)
	}
	return mmsgNow(unix.SYS_SENDMMSG, b.fd, messages)
}
