package live

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"runtime"
	"time"

	"dumbbell/traffic/socket"
	"dumbbell/transports/atou/config"
	"dumbbell/transports/atou/handshake"
	"dumbbell/transports/atou/proto"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

const (
	goodbyeWait = time.Second // for the report to a sender that was interrupted, or failed

	dialAhead = 10 * time.Second // of the start, if that is later: the receiver does not keep an idle flow for ever

	ackMessages = 64
	ackSlot     = proto.MaxAckBytes + 1 // what is longer is no ACK
	lateMax     = time.Second           // largest lateness that is told apart
)

// DefaultSilence is less than DefaultIdle.
const DefaultSilence = 30 * time.Second

// SendConfig is what a sender needs to know.
type SendConfig struct {
	Sender config.Sender
	Token  *handshake.Token
	To     netip.AddrPort
	Bind   netip.AddrPort // if invalid, the kernel chooses
	Mode   Mode
	Start  time.Time    // of the first segment; zero: at once
	Opened func() error // called once the flow is open, which its error ends; may be nil
	// Silence is for how long no ACK may come before the receiver is given up; 0: DefaultSilence.
	// It is longer if a time-out is: what that sends again must have time for its ACK.
	Silence time.Duration

	Interval time.Duration // of samples; 0: none
	// Both are called in the sender's thread and keep it from sending.
	Observe func(*proto.Event)
	Sample  func(*Sample)
}

// A Sample is the state of a sender at a moment.
type Sample struct {
	Time  time.Time
	Stats proto.Stats
	Busy  time.Duration // with segments outstanding
	Final bool          // at the end of the transfer
	Path  PathCounts
}

// PathCounts are a sender's counts of what is beside the protocol.
type PathCounts struct {
	Foreign uint64 `json:"foreign"`      // datagrams of another flow, or of none
	Drops   uint64 `json:"socket_drops"` // ACKs, or trains of them, that the socket had no room for
	Errors  uint64 `json:"icmp_errors"`  // told by ICMP, or by the host's routing or firewall
	Trains  uint64 `json:"trains"`       // that left; in precise mode each is one segment
	GSO     bool   `json:"gso"`          // trains were divided by the kernel or the device
}

// Sent is what became of a transfer.
type Sent struct {
	Started  time.Time
	Elapsed  time.Duration
	Stats    proto.Stats
	Busy     time.Duration
	Path     PathCounts
	Reported bool // Receiver is known
	Receiver proto.ReceiverStats
	Config   config.Receiver         // that the receiver had
	Late     *hdrhistogram.Histogram // ns from when a segment that waited for its time was to leave, to its system call
	CPU      time.Duration           // of the sender's thread
	SndBuf   int                     // bytes that the kernel gave
	RcvBuf   int
}

// A sender runs a transfer. Nothing that run calls allocates.
type sender struct {
	config *SendConfig
	core   *proto.Sender
	peer   peer
	clock  clock
	in     *inbox
	out    *socket.Batch
	ack    proto.Ack
	data   proto.Data
	poll   [1]unix.PollFd
	late   *hdrhistogram.Histogram
	path   PathCounts

	now      time.Duration
	sampleAt time.Duration // next
	heard    time.Duration // last ACK
	refused  time.Duration // since then, when ICMP first said that nobody is there; 0: it did not
	reason   error         // since then, what ICMP, or the host, said last
	blocked  int16         // the kernel refused a segment: what to poll for before it is tried again; 0: it did not
	due      time.Duration // departure of the segment that waits for it; 0: none does
	sample   Sample
}

// Send opens a flow and runs a transfer to its end. What has been sent is
// returned even if there is an error.
func Send(ctx context.Context, c SendConfig) (sent Sent, err error) {
	if err := c.Sender.Check(); err != nil {
		return sent, err
	}
	if c.Silence == 0 {
		c.Silence = DefaultSilence
	}
	if c.Mode == Bulk && c.Sender.Gap > 0 {
		return sent, fmt.Errorf("gap %v needs the mode precise: trains have no times of their own", c.Sender.Gap)
	}
	if !sleepUntil(ctx, c.Start.Add(-dialAhead)) {
		return sent, fmt.Errorf("interrupted before the start: %w", ctx.Err())
	}
	p, err := dial(ctx, &c)
	if err != nil {
		return sent, err
	}
	defer unix.Close(p.fd)
	sent.SndBuf, sent.RcvBuf = p.sndBuf, p.rcvBuf
	s := &sender{
		config: &c, peer: p, core: proto.NewSender(c.Sender), out: newOutbox(p.fd, c.Sender.MSS, c.Mode),
		late: hdrhistogram.New(1, int64(lateMax), 3), data: proto.Data{ID: p.id, Bytes: c.Sender.MSS},
		sampleAt: math.MaxInt64,
	}
	if s.in, err = newInbox(p.fd, &s.clock, ackMessages, ackSlot, c.Mode == Bulk); err != nil {
		return sent, fmt.Errorf("asking for times of arrival: %w", err)
	}
	s.core.Observe = c.Observe
	s.poll[0].Fd = int32(p.fd)
	if c.Interval > 0 && c.Sample != nil {
		s.sampleAt = 0
	}
	if c.Opened != nil {
		err = c.Opened()
	}
	if err == nil {
		err = s.run(ctx, &sent)
	}
	sent.Stats, sent.Late, sent.Config = s.core.Stats(), s.late, p.receiver
	if err != nil { // the receiver is to know of it, though not for long
		short, cancel := context.WithTimeout(context.Background(), goodbyeWait)
		defer cancel()
		return sent, errors.Join(err, s.end(short, &sent))
	}
	return sent, s.end(ctx, &sent)
}

// end tells the receiver that the transfer has ended, and takes its report.
func (s *sender) end(ctx context.Context, sent *Sent) error {
	id := s.peer.id
	fin := proto.Fin{ID: id, Segments: sent.Stats.Una, Elapsed: sent.Elapsed}
	var report proto.Report
	long := max(answerWait, 2*sent.Stats.LongRTT()) // the end follows what is queued, as the last segments did
	err := exchange(ctx, s.peer.fd, long, fin.Append(nil), func(b []byte) bool { return report.Decode(b) == nil && report.ID == id })
	if err != nil {
		return fmt.Errorf("asking the receiver at %v for its report after %d segments: %w", s.config.To, sent.Stats.Una, err)
	}
	sent.Receiver, sent.Reported = report.ReceiverStats, true
	return nil
}

// sleepUntil waits for a time, if it is to come, and reports whether the context
// lasted so long.
func sleepUntil(ctx context.Context, until time.Time) bool {
	for rest := time.Until(until); rest > 0; rest = time.Until(until) { // again, if the clock has been set back
		select {
		case <-ctx.Done():
			return false
		case <-time.After(rest):
		}
	}
	return ctx.Err() == nil
}

func (s *sender) run(ctx context.Context, sent *Sent) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer socket.ExactTimers()()
	cpu := socket.ThreadCPU()
	start := time.Now()
	for at := s.config.Start; !at.IsZero() && start.UnixNano() < at.UnixNano(); start = time.Now() {
		if !sleepUntil(ctx, at.Add(-time.Millisecond)) {
			return fmt.Errorf("interrupted before the start: %w", ctx.Err())
		}
	}
	s.clock.start, sent.Started = start, start
	err := s.transfer(ctx)
	sent.Elapsed = s.clock.now()
	s.count()
	sent.Busy, sent.Path = s.core.Busy(sent.Elapsed), s.path
	if s.config.Sample != nil {
		s.tell(sent.Elapsed, true)
	}
	sent.CPU = socket.ThreadCPU() - cpu
	return err
}
