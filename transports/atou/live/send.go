package live

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	"dumbbell/traffic/socket"
	"dumbbell/transports/atou/config"
	"dumbbell/transports/atou/handshake"
	"dumbbell/transports/atou/proto"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

const (
	refusedMax  = time.Second            // without an ACK since ICMP said that nobody is there: it is so
	refusedWait = 100 * time.Microsecond // before the host's queue is tried again

	goodbyeWait = time.Second // for the report to a sender that was interrupted, or failed

	spinTime  = 100 * time.Microsecond // before a departure: look for ACKs without sleeping
	quietTime = 10 * time.Microsecond  // before a departure: look at the clock only

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

func (s *sender) transfer(ctx context.Context) error {
	var ended atomic.Bool
	defer context.AfterFunc(ctx, func() { ended.Store(true) })()
	for s.now = 0; !s.core.Done(s.now); s.now = s.clock.now() {
		if ended.Load() {
			return fmt.Errorf("interrupted after %d segments: %w", s.core.Stats().Una, ctx.Err())
		}
		if s.now >= s.sampleAt {
			s.tell(s.now, false)
			s.sampleAt += (s.now-s.sampleAt)/s.config.Interval*s.config.Interval + s.config.Interval
		}
		if err := s.pump(); err != nil {
			return err
		}
		if s.take() {
			for s.blocked != 0 && s.out.Len() > 0 && s.take() { // a train that waits for room is not tried again at each ACK
			}
			continue
		}
		if err := s.flush(); err != nil {
			return err
		}
		if ready, err := s.wait(); err != nil {
			return err
		} else if ready {
			continue
		}
		s.now = s.clock.now()
		s.core.Timeout(s.now)
		if err := s.gone(); err != nil {
			return err
		}
	}
	return s.flush()
}

// pump sends all that may go now.
func (s *sender) pump() error {
	if s.blocked != 0 {
		s.blocked = 0
		if err := s.flush(); err != nil || s.blocked != 0 {
			return err
		}
	}
	for {
		seg, ok := s.core.Next(s.now)
		if !ok {
			s.due = 0
			if at, held := s.core.Held(); held {
				s.due = at
			}
			return nil
		}
		if !seg.Drop {
			s.data.Seg, s.data.Sent, s.data.Resent, s.data.Last = seg.Seg, s.now, seg.Resent, seg.Last
			s.data.Encode(s.out.Place())
			s.out.Add(s.data.Bytes)
			if s.out.Full() {
				if err := s.flush(); err != nil {
					return err
				}
				if s.blocked != 0 && s.out.Len() == 0 {
					return nil
				}
			}
		}
		if s.due > 0 {
			s.late.RecordValue(int64(min(s.now-s.due, lateMax)))
			s.due = 0
		}
		s.core.Sent(s.now, seg)
		if s.blocked != 0 {
			return nil
		}
		if s.out.Len() == 0 { // else they leave together
			s.now = s.clock.now()
		}
	}
}

// flush sends the train, if there is any. The kernel may refuse it: in precise
// mode it is then as if it had never been, in bulk mode pump tries it again.
func (s *sender) flush() error {
	for attempts := 0; s.out.Len() > 0 && s.blocked == 0; attempts++ {
		switch err := s.out.Send(); {
		case err == nil:
			s.path.Trains++
		case err == unix.EINTR:
		case err == unix.EAGAIN || err == unix.ENOBUFS:
			s.core.Refused()
			if s.config.Mode == Precise {
				s.out.Clear()
			}
			s.blocked = unix.POLLIN
			if err == unix.EAGAIN { // of the socket's own buffer it is told when it has room
				s.blocked |= unix.POLLOUT
			}
		case soft(err) || err == unix.EPERM:
			s.told(err)
			if attempts > 0 || err == unix.EPERM { // not of an earlier datagram: there is no way for this one, and it is lost
				s.out.Drop()
			}
		default:
			return fmt.Errorf("sending to %v: %w", s.config.To, err)
		}
	}
	return nil
}

// told takes note of what ICMP, or the host itself, says. Ways come back, and
// a receiver that has ended does not.
func (s *sender) told(err error) {
	s.path.Errors++
	s.reason = err
	if err == unix.ECONNREFUSED && s.refused == 0 {
		s.refused = s.clock.now()
	}
}

// take takes one ACK, if one has come.
func (s *sender) take() bool {
	b, at, ok := s.in.next()
	if !ok {
		return false
	}
	if s.ack.Decode(b) != nil || s.ack.ID != s.peer.id {
		s.path.Foreign++
		return true
	}
	s.heard, s.refused, s.reason = at, 0, nil
	s.core.Timeout(at) // what was due before the ACK came
	s.core.Ack(at, &s.ack)
	return true
}

// wait waits for ACKs, or until something is due, and reports whether there are
// any.
func (s *sender) wait() (ready bool, err error) {
	for look := s.clock.now() + lookWait; ; {
		ready, err := s.in.fill()
		switch {
		case ready:
			return true, nil
		case soft(err):
			s.told(err)
		case err != nil:
			return false, fmt.Errorf("receiving from %v: %w", s.config.To, err)
		}
		now := s.clock.now()
		until, departs := s.until(look)
		rest := until - now
		if rest <= 0 {
			return false, nil
		}
		s.poll[0].Events = unix.POLLIN
		if s.blocked != 0 {
			s.poll[0].Events = s.blocked
			rest = min(rest, refusedWait)
		} else if departs {
			if rest <= quietTime {
				for s.clock.now() < until {
				}
				return false, nil
			}
			if rest <= spinTime {
				continue
			}
			rest -= spinTime
		}
		ts := unix.NsecToTimespec(int64(rest))
		if _, err := unix.Ppoll(s.poll[:], &ts, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return false, fmt.Errorf("waiting for ACKs: %w", err)
		}
		if s.poll[0].Revents&unix.POLLERR != 0 {
			if err := takeErrors(s.peer.fd); err != nil {
				s.told(err)
			}
		}
		if s.blocked != 0 {
			return false, nil
		}
	}
}

// until is when wait has to return, at the latest at a time, and whether a
// departure is what is due then.
func (s *sender) until(latest time.Duration) (at time.Duration, departs bool) {
	at = min(latest, s.sampleAt)
	if due, ok := s.core.Deadline(); ok {
		at = min(at, due)
	}
	held, ok := s.core.Held()
	return at, ok && held == at
}

// gone is the error of a receiver that has been silent for too long.
func (s *sender) gone() error {
	silent := s.now - s.heard
	if silent < refusedMax && silent < s.config.Silence {
		return nil
	}
	st := s.core.Stats()
	if st.Una == st.Max { // nothing to acknowledge
		s.heard = s.now
		return nil
	}
	// The RTO without its backoff, which grows as the silence does.
	rto := max(s.config.Sender.Timeout, st.LongRTT())
	longest := max(s.config.Silence, 2*(rto+s.config.Sender.Tick))
	if silent < longest && (s.refused == 0 || s.now-s.refused < refusedMax) {
		return nil
	}
	said := "nothing says why"
	if s.reason == unix.EPERM {
		said = "the firewall of this host does not let segments out"
	} else if s.reason != nil {
		said = "ICMP says " + s.reason.Error()
	}
	return fmt.Errorf("the receiver at %v is gone: no ACK has come for %v, and %s; %d segments are acknowledged",
		s.config.To, silent.Round(time.Millisecond), said, st.Una)
}

// count brings up to date what the sockets count.
func (s *sender) count() {
	s.path.Drops = uint64(s.in.drops)
	s.path.GSO = s.config.Mode == Bulk && s.out.GSO
}

func (s *sender) tell(at time.Duration, final bool) {
	s.count()
	// An ACK that is taken after a sample may have arrived before it, and end the busy time there.
	busy := max(s.sample.Busy, s.core.Busy(at))
	s.sample = Sample{Time: s.clock.start.Add(at), Stats: s.core.Stats(), Busy: busy, Final: final, Path: s.path}
	s.config.Sample(&s.sample)
}
