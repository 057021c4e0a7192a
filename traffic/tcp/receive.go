package tcp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"dumbbell/traffic/socket"

	"golang.org/x/sys/unix"
)

// mostAtOnce is how many bytes a call discards at the most.
const mostAtOnce = 64 << 20

// backlog is how many connections wait to be accepted.
const backlog = 128

// A ReceivedStream is what the receiver tells of a stream.
type ReceivedStream struct {
	Stream
	EndSeen bool `json:"end_seen"` // all that was sent has come
}

// A ReceivedResult is what a receiver got.
type ReceivedResult struct {
	UnixNs        int64            `json:"unix_ns"`
	IntervalBytes []int64          `json:"interval_bytes"` // of each second since the planned start
	Foreign       int64            `json:"foreign"`        // connections that were none of the flow's, and were ended
	Streams       []ReceivedStream `json:"streams"`
}

// A Receiver is the receiving end of a flow.
type Receiver struct {
	config  Config
	fd      int // listens
	foreign atomic.Int64

	mu      sync.Mutex
	streams []*receiving // by their numbers; nil: there is none
}

// receiving is one stream.
type receiving struct {
	told      ReceivedStream
	intervals intervals
}

// NewReceiver listens.
func NewReceiver(config Config) (*Receiver, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	config.PacingBps = 0 // is of the sender
	fd, err := config.open(config.Receiver, config.Sender.Addr())
	if err != nil {
		return nil, err
	}
	if err := unix.Listen(fd, backlog); err != nil {
		return nil, errors.Join(os.NewSyscallError("listen", err), unix.Close(fd))
	}
	return &Receiver{config: config, fd: fd, streams: make([]*receiving, config.Streams)}, nil
}

// Close ends listening.
func (r *Receiver) Close() error { return os.NewSyscallError("close", unix.Close(r.fd)) }

// Run receives until all streams have ended, or the context does. Intervals are
// counted from start, which carries Go's monotonic reading. The result holds what
// came even if there is an error.
func (r *Receiver) Run(ctx context.Context, start time.Time) (ReceivedResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	woken := make(chan struct{})
	context.AfterFunc(ctx, func() {
		unix.Shutdown(r.fd, unix.SHUT_RD) // accept returns
		close(woken)
	})
	var all sync.WaitGroup
	var failure error
	var ended atomic.Int64
	for ctx.Err() == nil {
		fd, from, err := unix.Accept4(r.fd, unix.SOCK_CLOEXEC)
		if err == unix.EINTR || err == unix.ECONNABORTED {
			continue
		}
		if err != nil {
			if ctx.Err() == nil {
				failure = os.NewSyscallError("accept", err)
			}
			break
		}
		all.Go(func() {
			if r.serve(ctx, fd, socket.AddrPort(from).Port(), start) && ended.Add(1) == int64(r.config.Streams) {
				cancel()
			}
		})
	}
	all.Wait()
	cancel()
	<-woken
	result := ReceivedResult{UnixNs: time.Now().UnixNano(), Foreign: r.foreign.Load(), Streams: []ReceivedStream{}}
	var counts []intervals
	for _, st := range r.streams {
		if st != nil {
			result.Streams = append(result.Streams, st.told)
			counts = append(counts, st.intervals)
		}
	}
	result.IntervalBytes = sum(counts)
	if failure != nil {
		failure = fmt.Errorf("accepting at %v: %w", r.config.Receiver, failure)
	}
	return result, failure
}

// serve receives over a connection from a port, and reports whether it was a stream of the flow.
func (r *Receiver) serve(ctx context.Context, fd int, from uint16, start time.Time) bool {
	number := int(from) - int(r.config.Sender.Port())
	st := new(receiving)
	if !r.take(number, st) {
		r.foreign.Add(1)
		reset(fd)
		return false
	}
	if st.told.read(fd, r.config.Receiver.Addr()) != nil || !st.isOwn(ctx, fd, r.config.header(number)) {
		r.give(number)
		if ctx.Err() == nil {
			r.foreign.Add(1)
		}
		reset(fd)
		return false
	}
	st.intervals.add(time.Since(start), HeaderBytes)
	st.receive(ctx, fd, start)
	unix.Close(fd)
	return true
}

// take lets a stream be the one of a number, if there is none yet.
func (r *Receiver) take(number int, st *receiving) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if number < 0 || number >= len(r.streams) || r.streams[number] != nil {
		return false
	}
	r.streams[number] = st
	return true
}

// give undoes take.
func (r *Receiver) give(number int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.streams[number] = nil
}

// isOwn waits for the first bytes, and reports whether they are the header of this stream.
func (st *receiving) isOwn(ctx context.Context, fd int, header [HeaderBytes]byte) bool {
	var got [HeaderBytes]byte
	if setTimeout(fd, unix.SO_RCVTIMEO, interval) != nil {
		return false
	}
	for st.told.Bytes < HeaderBytes {
		n, err := unix.Read(fd, got[st.told.Bytes:])
		st.told.Calls++
		if ctx.Err() != nil || n <= 0 && !(err != nil && notYet(err)) {
			return false
		}
		st.told.Bytes += int64(max(0, n))
	}
	st.told.FirstUnixNs = time.Now().UnixNano()
	st.told.LastUnixNs = st.told.FirstUnixNs
	return got == header
}

// receive discards data to its end, says how much it was, and waits until the sender has heard it.
func (st *receiving) receive(ctx context.Context, fd int, start time.Time) {
	deadline, _ := ctx.Deadline()
	for !st.told.EndSeen {
		since := time.Since(start)
		wait := toBoundary(since)
		if !deadline.IsZero() {
			wait = min(wait, time.Until(deadline))
		}
		if ctx.Err() != nil || wait <= 0 || setTimeout(fd, unix.SO_RCVTIMEO, wait) != nil {
			return
		}
		// MSG_TRUNC: the kernel copies nothing. MSG_WAITALL: it goes on until the time is over.
		n, _, errno := unix.Syscall6(unix.SYS_RECVFROM, uintptr(fd), 0, mostAtOnce, unix.MSG_TRUNC|unix.MSG_WAITALL, 0, 0)
		st.told.Calls++
		switch {
		case errno != 0 && !notYet(errno):
			return
		case errno != 0:
		case n == 0:
			st.told.EndSeen = true
			st.told.LastUnixNs = time.Now().UnixNano()
		default:
			st.told.Bytes += int64(n)
			st.told.LastUnixNs = time.Now().UnixNano()
			st.intervals.add(since, int(n))
		}
	}
	unix.Write(fd, binary.BigEndian.AppendUint64(nil, uint64(st.told.Bytes)))
	for ctx.Err() == nil {
		gone := []unix.PollFd{{Fd: int32(fd)}} // a reset, of which there is no need to ask
		if n, err := unix.Poll(gone, int(interval.Milliseconds())); n > 0 || err != nil && err != unix.EINTR {
			return
		}
	}
}
