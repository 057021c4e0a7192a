// Package ntp reads how far the clock of this host can be trusted: what the
// kernel says, and what chrony has measured if it runs.
package ntp

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"dumbbell/collectors/row"

	"github.com/facebook/time/ntp/chrony"
	"golang.org/x/sys/unix"
)

const (
	// interval is that of rows: the clock is corrected every few seconds at most.
	interval = time.Second

	timeout = 500 * time.Millisecond
)

// Chrony is where chronyd answers questions of this host.
const Chrony = "127.0.0.1:323"

// A Source writes rows once a second. Chrony is asked by a goroutine, so that
// its answer is not waited for.
type Source struct {
	kernel, chrony row.Series
	asked          time.Time
	stop, done     chan struct{}

	mu       sync.Mutex
	tracking *chrony.Tracking // the last answer; nil if it was written already
	at       time.Time
}

// NewSource begins to ask chronyd at an address, if there is one.
func NewSource(tags row.Tags, address string) *Source {
	s := &Source{
		kernel: row.NewSeries("clock", tags.With("source", "kernel")),
		chrony: row.NewSeries("clock", tags.With("source", "chrony")),
		stop:   make(chan struct{}), done: make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		ticks := time.NewTicker(interval)
		defer ticks.Stop()
		for {
			if t, err := Ask(address); err == nil {
				s.mu.Lock()
				s.tracking, s.at = t, time.Now()
				s.mu.Unlock()
			}
			select {
			case <-s.stop:
				return
			case <-ticks.C:
			}
		}
	}()
	return s
}

// Close stops asking.
func (s *Source) Close() error {
	close(s.stop)
	<-s.done
	return nil
}

// Ask asks chronyd how it follows its source.
func Ask(address string) (*chrony.Tracking, error) {
	conn, err := net.Dial("udp", address)
	if err != nil {
		return nil, fmt.Errorf("asking chronyd: %w", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, fmt.Errorf("asking chronyd: %w", err)
	}
	client := chrony.Client{Connection: conn}
	answer, err := client.Communicate(chrony.NewTrackingPacket())
	if err != nil {
		return nil, fmt.Errorf("asking chronyd at %s: %w", address, err)
	}
	tracking, ok := answer.(*chrony.ReplyTracking)
	if !ok {
		return nil, errors.New("asking chronyd: it answered something else")
	}
	return &tracking.Tracking, nil
}

// Sample writes what is new, at most once a second.
func (s *Source) Sample(rows *row.Rows) error {
	now := time.Now()
	if now.Sub(s.asked) < interval {
		return nil
	}
	s.asked = now
	var k unix.Timex
	if _, err := unix.Adjtimex(&k); err != nil {
		return fmt.Errorf("asking the kernel for its clock: %w", err)
	}
	rows.Begin(s.kernel)
	rows.Bool("synchronised", k.Status&unix.STA_UNSYNC == 0)
	rows.Int("frequency_ppb", int64(k.Freq)*1000/65536) // ppm in units of 2^-16
	if k.Status&unix.STA_UNSYNC == 0 {                  // else they only grow
		rows.Int("max_error_ns", int64(k.Maxerror)*1000)
		rows.Int("estimated_error_ns", int64(k.Esterror)*1000)
	}
	rows.End(now)

	s.mu.Lock()
	t, at := s.tracking, s.at
	s.tracking = nil
	s.mu.Unlock()
	if t == nil {
		return nil
	}
	ns := func(seconds float64) int64 { return int64(seconds * 1e9) }
	rows.Begin(s.chrony)
	rows.Bool("synchronised", t.LeapStatus != 3)
	rows.Int("stratum", int64(t.Stratum))
	rows.Int("offset_ns", ns(t.CurrentCorrection))
	rows.Int("last_offset_ns", ns(t.LastOffset))
	rows.Int("rms_offset_ns", ns(t.RMSOffset))
	rows.Int("frequency_ppb", int64(t.FreqPPM*1000))
	rows.Int("skew_ppb", int64(t.SkewPPM*1000))
	rows.Int("root_delay_ns", ns(t.RootDelay))
	rows.Int("root_dispersion_ns", ns(t.RootDispersion))
	rows.End(at)
	return nil
}
