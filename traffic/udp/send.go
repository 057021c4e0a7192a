package udp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"dumbbell/collectors/row"
	"dumbbell/traffic/socket"

	"golang.org/x/sys/unix"
)

const (
	wakeInterval = 500 * time.Microsecond // at the shortest
	batchSpan    = 2 * wakeInterval       // of the schedule that a batch covers at most; more after a late wake-up:
	batchSpanMax = 20 * time.Millisecond  // twice the time since the batch before, but not more than this
	skipAfter    = 100 * time.Millisecond // what is later than this is not sent
	lookInterval = 100 * time.Millisecond // for the end of the context

	maxBatch      = 1024 // datagrams
	maxBatchBytes = 4 << 20

	sendBufferBytes = 4 << 20

	// tooLargeMax is more often than ICMP says so before the kernel fragments.
	tooLargeMax = 1 << 16

	// End markers are spread so that a full queue does not lose them all.
	endMarkers      = 10
	endMarkerSpacer = 50 * time.Millisecond
)

// A SenderConfig describes the sending end of a flow.
type SenderConfig struct {
	From     netip.AddrPort // if invalid, the kernel chooses
	To       netip.AddrPort
	Token    uint64
	Schedule Schedule
	Interval time.Duration    // of reports
	Report   func(SentReport) // called at multiples of the interval of the wall clock; may be nil
	Started  func(time.Time)  // called after the first datagram, with its departure; may be nil
}

// A SentReport is what a sender has done since its start, up to a moment.
type SentReport struct {
	UnixNs         int64  `json:"unix_ns"`
	AskedPackets   uint64 `json:"asked_packets"`   // due by then
	SentPackets    uint64 `json:"sent_packets"`    // handed to the kernel
	SentBytes      uint64 `json:"sent_bytes"`      // of payload
	SkippedPackets uint64 `json:"skipped_packets"` // not sent, for they were too late
	DroppedPackets uint64 `json:"dropped_packets"` // of those sent: refused by the host's own queue
	LateMaxNs      int64  `json:"late_max_ns"`     // of the datagrams sent since the report before; in a result, of all
}

// A SentResult is what a sender did.
type SentResult struct {
	SentReport
	AskedBps    float64 `json:"asked_bps"` // payload, mean over the duration
	SentBps     float64 `json:"sent_bps"`
	FirstUnixNs int64   `json:"first_unix_ns"`
	LastUnixNs  int64   `json:"last_unix_ns"`
	Batches     uint64  `json:"batches"`
	Refusals    uint64  `json:"refusals"`  // ICMP said that nobody listens
	TooLarge    uint64  `json:"too_large"` // ICMP said that the path takes smaller packets only
	GSO         bool    `json:"gso"`
	CPUNs       int64   `json:"cpu_ns"`
}

// Held reports whether all but a thousandth of what was asked was sent.
func (r SentResult) Held() bool { return r.AskedPackets-r.SentPackets <= r.AskedPackets/1000 }

// A Sender is the sending end of a flow.
type Sender struct {
	config SenderConfig
	fd     int
	batch  *socket.Batch
	end    [HeaderBytes]byte

	result   SentResult
	lateMax  time.Duration // since the last report
	sequence uint64
}

// NewSender makes the socket and the buffers of a flow.
func NewSender(config SenderConfig) (_ *Sender, err error) {
	if err := config.Schedule.Check(); err != nil {
		return nil, err
	}
	if config.Interval <= 0 {
		return nil, fmt.Errorf("the interval of reports must be positive, is %v", config.Interval)
	}
	fd, err := socket.Open(config.To.Addr())
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	s := &Sender{config: config, fd: fd}
	if config.From.IsValid() {
		if err := unix.Bind(s.fd, socket.Sockaddr(config.From)); err != nil {
			return nil, fmt.Errorf("binding to %v: %w", config.From, err)
		}
	}
	if err := unix.Connect(s.fd, socket.Sockaddr(config.To)); err != nil {
		return nil, fmt.Errorf("connecting to %v: %w", config.To, err)
	}
	if _, err := socket.SetSendBuffer(s.fd, sendBufferBytes); err != nil {
		return nil, err
	}
	if err := socket.ReportErrors(s.fd, config.To.Addr()); err != nil {
		return nil, err
	}

	size := config.Schedule.Size
	perSpan := int(min(maxBatch, config.Schedule.MaxRate()/8*int64(batchSpanMax)/int64(time.Second)/int64(size)+1))
	s.batch = socket.NewBatch(s.fd, size, max(1, min(perSpan, maxBatchBytes/size)))
	return s, nil
}

// Close closes the socket.
func (s *Sender) Close() error { return unix.Close(s.fd) }

// Run sends from start, which carries Go's monotonic reading, to the end of
// the schedule or of the context, and then end markers. The result holds what
// was done even if there is an error.
func (s *Sender) Run(ctx context.Context, start time.Time) (SentResult, error) {
	runtime.LockOSThread() // for the thread's timer slack and CPU time
	defer runtime.UnlockOSThread()
	defer socket.ExactTimers()()
	cpu := socket.ThreadCPU()
	err := s.send(ctx, start)
	if err == nil && ctx.Err() == nil {
		err = s.sendEnd(ctx)
	}
	r := &s.result
	r.GSO = s.batch.GSO
	r.CPUNs = (socket.ThreadCPU() - cpu).Nanoseconds()
	seconds := s.config.Schedule.Duration.Seconds()
	r.AskedBps = float64(r.AskedPackets) * float64(s.config.Schedule.Size) * 8 / seconds
	r.SentBps = float64(r.SentBytes) * 8 / seconds
	return *r, err
}

func (s *Sender) send(ctx context.Context, start time.Time) error {
	var (
		pace     = newPacer(s.config.Schedule)
		size     = s.config.Schedule.Size
		due, ok  = pace.next()
		startNs  = start.UnixNano()
		interval = s.config.Interval
		// End of the running interval, from start: intervals end at multiples of the wall clock.
		report = interval - time.Duration(startNs%int64(interval))
		last   time.Duration // time of the last batch
	)
	for ok && ctx.Err() == nil {
		now := time.Now()
		elapsed := now.Sub(start)
		for ok && due+skipAfter < elapsed {
			s.result.AskedPackets++
			s.result.SkippedPackets++
			due, ok = pace.next()
		}
		first, n := due, 0
		span := min(max(batchSpan, 2*(elapsed-last)), batchSpanMax)
		for ; ok && !s.batch.Full() && due <= elapsed && due-first < span; n++ {
			header{kindData, s.config.Token, s.sequence + uint64(n), now.UnixNano()}.encode(s.batch.Place())
			s.batch.Add(size)
			due, ok = pace.next()
		}
		if n > 0 {
			late := elapsed - first
			s.lateMax = max(s.lateMax, late)
			starts := s.sequence == 0
			s.result.LastUnixNs = now.UnixNano()
			s.result.AskedPackets += uint64(n)
			s.sequence += uint64(n)
			if err := s.sendBatch(); err != nil {
				return err
			}
			if starts {
				s.result.FirstUnixNs = now.UnixNano()
				if s.config.Started != nil {
					s.config.Started(now)
				}
			}
			last = elapsed
		}
		for elapsed >= report {
			s.report(startNs + int64(report))
			report += interval
		}
		next := report
		if ok {
			next = min(report, max(due, last+wakeInterval))
		}
		if wait := next - elapsed; ok && wait > 0 {
			sleep(min(wait, lookInterval))
		}
	}
	for ; ok; _, ok = pace.next() { // the context has ended
		s.result.AskedPackets++
	}
	s.report(startNs + int64(report))
	return nil
}

// report reports at the end of an interval.
func (s *Sender) report(unixNs int64) {
	r := &s.result.SentReport
	r.UnixNs = unixNs
	if s.config.Report != nil {
		interval := *r
		interval.LateMaxNs = s.lateMax.Nanoseconds()
		s.config.Report(interval)
	}
	r.LateMaxNs = max(r.LateMaxNs, s.lateMax.Nanoseconds())
	s.lateMax = 0
}

// sendBatch sends the batch.
func (s *Sender) sendBatch() error {
	s.result.Batches++
	for s.batch.Len() > 0 {
		before := s.batch.Len()
		err := s.batch.Send()
		if errors.Is(err, unix.ENOBUFS) {
			s.result.DroppedPackets += uint64(s.batch.Drop())
		}
		packets := uint64(before - s.batch.Len())
		s.result.SentPackets += packets
		s.result.SentBytes += packets * uint64(s.config.Schedule.Size)
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			if err := s.refused(err); err != nil {
				return err
			}
		}
	}
	return nil
}

// refused deals with the error of a system call that sent nothing. Without an
// error of its own sending may be tried again.
func (s *Sender) refused(err error) error {
	switch {
	case interrupted(err):
		return nil
	case errors.Is(err, unix.ECONNREFUSED):
		s.result.Refusals++ // of an earlier datagram
		return nil
	case errors.Is(err, unix.EMSGSIZE) && s.result.TooLarge < tooLargeMax:
		// ICMP said it of an earlier datagram. The kernel fragments the next ones.
		s.result.TooLarge++
		return nil
	}
	return fmt.Errorf("sending to %v: %w", s.config.To, err)
}

// sendEnd tells the receiver how many datagrams there were.
func (s *Sender) sendEnd(ctx context.Context) error {
	for range endMarkers {
		header{kindEnd, s.config.Token, s.sequence, time.Now().UnixNano()}.encode(s.end[:])
		for {
			_, err := unix.Write(s.fd, s.end[:])
			if err == nil || errors.Is(err, unix.ENOBUFS) {
				break
			}
			if err := s.refused(err); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(endMarkerSpacer):
		}
	}
	return nil
}

// Time is when the report was made.
func (r SentReport) Time() time.Time { return time.Unix(0, r.UnixNs) }

// AddFields adds the report to a row.
func (r SentReport) AddFields(rows *row.Rows) {
	addCount(rows, "asked_packets", r.AskedPackets)
	addCount(rows, "sent_packets", r.SentPackets)
	addCount(rows, "sent_bytes", r.SentBytes)
	addCount(rows, "skipped_packets", r.SkippedPackets)
	addCount(rows, "dropped_packets", r.DroppedPackets)
	rows.Int("late_max_ns", r.LateMaxNs)
}

func addCount(rows *row.Rows, name string, count uint64) {
	rows.Int(name, int64(count))
}
