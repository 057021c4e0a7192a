package sample

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

// NewClock relates Go's monotonic clock to the kernel's.
func NewClock() (Clock, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return Clock{}, fmt.Errorf("reading CLOCK_MONOTONIC: %w", err)
	}
	return Clock{origin: time.Now(), originMono: time.Duration(ts.Nano())}, nil
}

// Mono is CLOCK_MONOTONIC at a time that this process has read.
func (c Clock) Mono(t time.Time) time.Duration { return c.originMono + t.Sub(c.origin) }

// At turns a moment of the wall clock into a deadline of the monotonic clock.
// Done once for a run, it makes the run immune to steps of the wall clock.
func (c Clock) At(unixNs int64) time.Time {
	now := time.Now()
	return now.Add(time.Duration(unixNs - now.UnixNano()))
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
