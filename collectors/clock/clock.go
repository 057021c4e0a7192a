// Package clock reads the clocks that rows are stamped with: wall time and
// CLOCK_MONOTONIC of the same moment, and the kernel's stamps of packets.
package clock

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// A Clock reads wall time and CLOCK_MONOTONIC with one call to the kernel:
// Go's own monotonic clock is CLOCK_MONOTONIC from another origin.
type Clock struct {
	origin     time.Time
	originMono time.Duration
}

// New relates Go's monotonic clock to the kernel's.
func New() (Clock, error) { return newClock(unix.ClockGettime) }

func newClock(get func(clock int32, ts *unix.Timespec) error) (Clock, error) {
	var failure error
	c, _ := Closest(func() Clock {
		var ts unix.Timespec
		if err := get(unix.CLOCK_MONOTONIC, &ts); err != nil {
			failure = fmt.Errorf("reading CLOCK_MONOTONIC: %w", err)
		}
		return Clock{origin: time.Now(), originMono: time.Duration(ts.Nano())}
	})
	return c, failure
}

// Mono is CLOCK_MONOTONIC at a time that this process has read.
func (c Clock) Mono(t time.Time) time.Duration { return c.originMono + t.Sub(c.origin) }

// At turns a moment of the wall clock into a deadline of the monotonic clock.
// Done once for a run, it makes the run immune to steps of the wall clock.
func (c Clock) At(unixNs int64) time.Time {
	now := Now()
	return now.Add(time.Duration(unixNs - now.UnixNano()))
}

// Now is time.Now whose wall time and monotonic time are of the same moment.
// time.Now reads one clock after the other, and may be kept waiting between.
func Now() time.Time {
	now, _ := closest(50*time.Microsecond, time.Now) // two system calls of a User-Mode Linux host
	return now
}

// Closest reads clocks several times and returns the reading that took the
// least time, and that time: the thread may be kept waiting between one clock
// and the next, so they are as far apart as that at most.
func Closest[T any](read func() T) (best T, took time.Duration) {
	return closest(time.Microsecond, read) // what clocks take to read when nothing interrupts it
}

const readings = 10 // of clocks, at most

// closest takes the first reading that took no more time than is enough.
func closest[T any](enough time.Duration, read func() T) (best T, took time.Duration) {
	began := time.Now()
	for i := range readings {
		before := time.Since(began)
		reading := read()
		if d := time.Since(began) - before; i == 0 || d < took {
			best, took = reading, d
		}
		if took <= enough {
			break
		}
	}
	return best, took
}

// KernelStamp is the wall time, in ns, of a control message that SO_TIMESTAMPNS
// asked for: when the kernel had the packet in its hands.
func KernelStamp(h *unix.Cmsghdr, data []byte) (unixNs int64, ok bool) {
	if h.Level != unix.SOL_SOCKET || h.Type != unix.SO_TIMESTAMPNS || len(data) < 16 {
		return 0, false
	}
	seconds, ns := binary.NativeEndian.Uint64(data), binary.NativeEndian.Uint64(data[8:])
	return int64(seconds)*int64(time.Second) + int64(ns), true
}
