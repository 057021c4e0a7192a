package live

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

const maxTrain = 64 // datagrams: UDP_MAX_SEGMENTS

// withoutGSO is for tests of hosts that have none.
var withoutGSO bool

// An outbox gathers datagrams of a connected socket into a train, all of one
// size but for the last, which may be shorter.
type outbox struct {
	fd     int
	most   int // datagrams in a train
	buffer []byte
	n      int // datagrams
	used   int // bytes
	sent   int // of them, if there are no trains
	size   int // bytes of the first datagram
	short  bool

	header  unix.Msghdr
	iovec   unix.Iovec
	control [24]byte // CMSG_SPACE(2)
	noGSO   bool
}

func newOutbox(fd, largest int, mode Mode) *outbox {
	o := &outbox{fd: fd, most: 1, noGSO: withoutGSO}
	if mode == Bulk {
		o.most = max(1, min(maxTrain, 65507/largest))
	}
	o.buffer = make([]byte, o.most*largest)
	o.iovec.Base = &o.buffer[0]
	o.header.Iov = &o.iovec
	o.header.SetIovlen(1)
	o.header.Control = &o.control[0]
	o.header.SetControllen(len(o.control))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&o.control[0]))
	h.Level, h.Type = unix.SOL_UDP, unix.UDP_SEGMENT
	h.SetLen(unix.CmsgLen(2))
	return o
}

// full says that the train takes no more.
func (o *outbox) full() bool { return o.n == o.most || o.short }

// place is where the next datagram is to be written. The train must not be full.
func (o *outbox) place() []byte { return o.buffer[o.used:] }

// add takes a datagram of so many bytes that was written to its place. It
// reports false for one that does not go into this train: it is longer than
// the others. Nothing is added then.
func (o *outbox) add(bytes int) bool {
	switch {
	case o.n == 0:
		o.size = bytes
	case bytes > o.size:
		return false
	}
	o.short = bytes < o.size
	o.n++
	o.used += bytes
	return true
}

// clear forgets the train.
func (o *outbox) clear() { o.n, o.used, o.sent, o.short = 0, 0, 0, false }

// lose forgets what send has just failed to send, and tells how many datagrams
// that were: the train or, where there are no trains, the next of it.
func (o *outbox) lose() int {
	if n := o.n; n == 1 || !o.noGSO {
		o.clear()
		return n
	}
	if o.sent += min(o.size, o.used-o.sent); o.sent == o.used {
		o.clear()
	}
	return 1
}

// send sends what is in the train, and forgets it unless there is an error; then
// it may be called again. What ICMP told of an earlier datagram is an error too.
// It does not wait for room.
func (o *outbox) send() error {
	if o.n > 1 && !o.noGSO {
		err := o.sendTrain()
		// Without checksum offload, or with datagrams that have to be fragmented, there are no trains.
		o.noGSO = err == unix.EIO || err == unix.EINVAL || err == unix.EMSGSIZE
		if !o.noGSO {
			if err == nil {
				o.clear()
			}
			return err
		}
	}
	for o.sent < o.used {
		bytes := min(o.size, o.used-o.sent)
		if err := o.sendOne(o.buffer[o.sent : o.sent+bytes]); err != nil {
			return err
		}
		o.sent += bytes
	}
	o.clear()
	return nil
}

func (o *outbox) sendTrain() error {
	o.iovec.SetLen(o.used)
	binary.NativeEndian.PutUint16(o.control[unix.CmsgLen(0):], uint16(o.size))
	_, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(o.fd), uintptr(unsafe.Pointer(&o.header)), unix.MSG_DONTWAIT)
	if errno != 0 {
		return errno
	}
	return nil
}

func (o *outbox) sendOne(b []byte) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(o.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
