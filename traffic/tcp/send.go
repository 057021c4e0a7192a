package tcp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"dumbbell/collectors/pace"
	"dumbbell/traffic/socket"

	"golang.org/x/sys/unix"
)

// block is what data is made of.
var block [64 << 10]byte

// atOnce is how many blocks a call hands to the kernel: 16 MiB, so that on a fast
// host, too, the call before the end does not last long.
const atOnce = 256

// A SenderConfig describes the sending end of a flow.
type SenderConfig struct {
	Config
	Schedule Schedule
	Drain    time.Duration // after the end, until all that was handed to the kernel has arrived
}

// A SentStream is what the sender tells of a stream.
type SentStream struct {
	Stream
	ConnectedUnixNs int64 `json:"connected_unix_ns"`
	ConfirmedBytes  int64 `json:"confirmed_bytes"` // the receiver has got, as it said at the end; 0 if it did not
}

// A SentResult is what a sender did.
type SentResult struct {
	UnixNs        int64        `json:"unix_ns"`
	AskedBytes    int64        `json:"asked_bytes"`    // 0: as many as there was time for
	IntervalBytes []int64      `json:"interval_bytes"` // of each second since the planned start
	Streams       []SentStream `json:"streams"`
}

// A Sender is the sending end of a flow.
type Sender struct {
	config  SenderConfig
	streams []*sending
}

// sending is one stream.
type sending struct {
	config    Config
	schedule  Schedule
	fd        int
	header    [HeaderBytes]byte
	told      SentStream
	intervals intervals
	pieces    [][]byte
}

// NewSender makes the sockets of a flow. They connect when it runs.
func NewSender(config SenderConfig) (_ *Sender, err error) {
	if err := errors.Join(config.check(), config.Schedule.Check(config.Streams)); err != nil {
		return nil, err
	}
	s := &Sender{config: config}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	for i := range config.Streams {
		st := &sending{config: config.Config, schedule: config.Schedule.of(i, config.Streams), fd: -1, header: config.header(i)}
		s.streams = append(s.streams, st)
		from := config.Sender
		if from.Port() > 0 {
			from = netip.AddrPortFrom(from.Addr(), from.Port()+uint16(i))
		}
		if st.fd, err = config.open(from, netip.Addr{}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Close closes what Run has not.
func (s *Sender) Close() (err error) {
	for _, st := range s.streams {
		err = errors.Join(err, st.close(reset))
	}
	return err
}

// Run connects at a moment, sends from start, which carries Go's monotonic
// reading, to the end of the schedule or of the context, and waits until all has
// arrived. The result holds what was done even if there is an error.
func (s *Sender) Run(ctx context.Context, connect, start time.Time) (SentResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	failures := make([]error, len(s.streams))
	for i, st := range s.streams {
		all.Go(func() {
			if failures[i] = st.run(ctx, connect, start, s.config.Drain); failures[i] != nil {
				cancel() // the others end too
			}
		})
	}
	all.Wait()
	result := SentResult{UnixNs: time.Now().UnixNano(), AskedBytes: s.config.Schedule.Asked()}
	var counts []intervals
	for _, st := range s.streams {
		result.Streams = append(result.Streams, st.told)
		counts = append(counts, st.intervals)
	}
	result.IntervalBytes = sum(counts)
	first := slices.IndexFunc(failures, func(err error) bool { return err != nil })
	if first < 0 {
		return result, nil
	}
	return result, fmt.Errorf("stream %d: %w", first, failures[first])
}

func (st *sending) run(ctx context.Context, connect, start time.Time, drain time.Duration) error {
	end := start.Add(st.schedule.Duration)
	if pace.SleepUntil(ctx, connect) != nil {
		return nil
	}
	if err := st.connect(ctx, end); err != nil {
		return fmt.Errorf("connecting to %v: %w", st.config.Receiver, err)
	}
	if pace.SleepUntil(ctx, start) != nil {
		return nil
	}
	err := st.transmit(ctx, start)
	st.told.LastUnixNs = time.Now().UnixNano()
	if err != nil {
		return fmt.Errorf("sending to %v after %d bytes: %w", st.config.Receiver, st.told.Bytes, err)
	}
	if ctx.Err() != nil {
		return st.close(reset)
	}
	return st.finish(ctx, end.Add(drain))
}

// connect connects. The call is repeated each second, to see whether the context has ended.
func (st *sending) connect(ctx context.Context, end time.Time) error {
	if err := setTimeout(st.fd, unix.SO_SNDTIMEO, interval); err != nil {
		return err
	}
	for ctx.Err() == nil {
		err := unix.Connect(st.fd, socket.Sockaddr(st.config.Receiver))
		if err == nil {
			st.told.ConnectedUnixNs = time.Now().UnixNano()
			return st.told.read(st.fd, st.config.Receiver.Addr())
		}
		if !notYet(err) && err != unix.EINPROGRESS && err != unix.EALREADY {
			return os.NewSyscallError("connect", err)
		}
		if time.Now().After(end) {
			return errors.New("no answer until the end of the flow")
		}
	}
	return ctx.Err()
}

// transmit writes what is due until the end.
func (st *sending) transmit(ctx context.Context, start time.Time) error {
	st.told.FirstUnixNs = time.Now().UnixNano()
	paced := st.schedule.RateBps > 0 || st.schedule.Burst > 0
	for ctx.Err() == nil && (st.schedule.Bytes == 0 || st.told.Bytes < st.schedule.Bytes) {
		since := time.Since(start)
		left := st.schedule.Duration - since
		due, more := st.schedule.due(min(since, st.schedule.Duration-1))
		due -= st.told.Bytes
		wait := min(toBoundary(since), left)
		switch {
		case left > 0 && due == 0:
			sleep(min(more-since, wait))
			continue
		case left <= 0 && (due == 0 || !paced):
			return nil
		}
		// What is little mostly finds room, and need not be told how long to wait.
		n, err := 0, error(unix.EAGAIN)
		if paced {
			n, err = st.write(due, unix.MSG_DONTWAIT)
		}
		if n <= 0 && errors.Is(err, unix.EAGAIN) && left > 0 {
			if err = setTimeout(st.fd, unix.SO_SNDTIMEO, wait); err != nil {
				return err
			}
			n, err = st.write(due, 0)
		}
		if n > 0 {
			st.told.Bytes += int64(n)
			st.intervals.add(since, n)
		} else if !notYet(err) {
			return os.NewSyscallError("sendmsg", err)
		}
		if left <= 0 { // that was what a late call had left over
			return nil
		}
	}
	return nil
}

// write hands at most so many bytes to the kernel, in one call.
func (st *sending) write(most int64, flags int) (int, error) {
	pieces := st.pieces[:0]
	add := func(b []byte) {
		b = b[:min(most, int64(len(b)))]
		pieces = append(pieces, b)
		most -= int64(len(b))
	}
	if st.told.Bytes < HeaderBytes {
		add(st.header[st.told.Bytes:])
	}
	for most > 0 && len(pieces) < atOnce {
		add(block[:])
	}
	st.pieces = pieces
	st.told.Calls++
	return unix.SendmsgBuffers(st.fd, pieces, nil, nil, flags|unix.MSG_NOSIGNAL)
}

// finish ends the data, and waits until the receiver has said how much it has
// got. The receiver leaves it to this end to end the connection, which then ends
// without TIME_WAIT: its ports may be those of the next flow. A receiver that
// gives up before is no error: ConfirmedBytes tells it.
func (st *sending) finish(ctx context.Context, until time.Time) error {
	if err := unix.Shutdown(st.fd, unix.SHUT_WR); err != nil {
		return os.NewSyscallError("shutdown", err)
	}
	var said [8]byte
	for got := 0; got < len(said); {
		left := time.Until(until)
		if left <= 0 || ctx.Err() != nil {
			return st.close(reset)
		}
		if err := setTimeout(st.fd, unix.SO_RCVTIMEO, min(left, interval)); err != nil {
			return err
		}
		n, err := unix.Read(st.fd, said[got:])
		if n <= 0 && !(err != nil && notYet(err)) {
			return st.close(unix.Close)
		}
		got += max(0, n)
	}
	st.told.ConfirmedBytes = int64(binary.BigEndian.Uint64(said[:]))
	// In FIN_WAIT2 this end sends a reset. With SO_LINGER the kernel would forget its counts too.
	err := unix.SetsockoptInt(st.fd, unix.IPPROTO_TCP, unix.TCP_LINGER2, -1)
	return errors.Join(os.NewSyscallError("setsockopt TCP_LINGER2", err), st.close(unix.Close))
}

// close closes the socket in a way, once.
func (st *sending) close(how func(fd int) error) error {
	if st.fd < 0 {
		return nil
	}
	fd := st.fd
	st.fd = -1
	return os.NewSyscallError("close", how(fd))
}

// sleep sleeps for a short time; a signal may cut it short.
func sleep(d time.Duration) {
	ts := unix.NsecToTimespec(d.Nanoseconds())
	unix.Nanosleep(&ts, nil)
}
