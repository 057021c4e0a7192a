package tcp

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"
)

// A Schedule is what the application of a flow writes, over all its streams.
type Schedule struct {
	Duration time.Duration
	Bytes    int64         // in all; 0: as much as there is time for
	RateBps  int64         // payload bit/s; 0: as fast as possible
	Burst    int64         // bytes at the start and each interval after it; 0: none
	Every    time.Duration // the interval of bursts
}

const (
	// tick is how often an application with a rate writes, at the most.
	tick = time.Millisecond

	// leastPiece is how many bytes it writes at the least: a full segment.
	leastPiece = 1448
)

// Check refuses what makes no flow of so many streams.
func (s Schedule) Check(streams int) error {
	switch {
	case s.Duration <= 0:
		return fmt.Errorf("the duration must be positive, is %v", s.Duration)
	case s.RateBps < 0 || s.Burst < 0 || s.Bytes < 0:
		return errors.New("rate, bursts and bytes must not be negative")
	case s.RateBps > 0 && s.Burst > 0:
		return errors.New("a flow has a rate or bursts, not both")
	case (s.Burst > 0) != (s.Every > 0):
		return errors.New("bursts and their interval belong together")
	case s.Bytes > 0 && s.Bytes < int64(streams)*HeaderBytes, s.Burst > 0 && s.Burst < int64(streams)*HeaderBytes:
		return fmt.Errorf("the data of a stream has %d bytes at least", HeaderBytes)
	}
	return nil
}

// Asked is how much is to be written until the end; 0 if nothing limits it.
func (s Schedule) Asked() int64 {
	if s.RateBps == 0 && s.Burst == 0 {
		return s.Bytes
	}
	asked, _ := s.due(s.Duration - 1)
	return asked
}

// of is the part of one stream.
func (s Schedule) of(stream, streams int) Schedule {
	share := func(all int64) int64 {
		i, n := int64(stream), int64(streams)
		return all/n + max(0, min(1, all%n-i))
	}
	s.Bytes, s.RateBps, s.Burst = share(s.Bytes), share(s.RateBps), share(s.Burst)
	return s
}

// due is how many bytes are to be written by a time since the start, and when that is more.
func (s Schedule) due(since time.Duration) (due int64, more time.Duration) {
	due, more = math.MaxInt64, s.Duration
	switch {
	case s.Burst > 0:
		number := int64(since / s.Every)
		due, more = s.Burst*(number+1), s.Every*time.Duration(number+1)
	case s.RateBps > 0:
		step := max(tick, time.Duration(8e9*leastPiece/s.RateBps))
		more = (since/step + 1) * step
		due = max(HeaderBytes, bytesIn(s.RateBps, min(more, s.Duration)))
	}
	if s.Bytes > 0 {
		due = min(due, s.Bytes)
	}
	return due, min(more, s.Duration)
}

// bytesIn is how many bytes a rate makes in a time.
func bytesIn(bps int64, d time.Duration) int64 {
	high, low := bits.Mul64(uint64(bps), uint64(d))
	quotient, _ := bits.Div64(high, low, 8e9)
	return int64(quotient)
}
