package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const (
	clockLook = time.Second

	// clockStep is more than slewing changes in clockLook: chrony slews by at most a
	// twelfth, and by far less once it is synchronised.
	clockStep = 5 * time.Millisecond

	// clockStepEvents is how many steps are recorded one by one.
	clockStepEvents = 20
)

// watchClock records every step of the wall clock while a phase runs, seen as a
// change of CLOCK_REALTIME against CLOCK_MONOTONIC_RAW, which nobody sets.
func (r *run) watchClock(ctx context.Context) error {
	first, err := wallOffset()
	if err != nil {
		return err
	}
	var (
		steps   int
		largest time.Duration
		end     = r.t0.Add(r.plan.Duration)
		offset  = first
	)
	for look := time.Now().Add(clockLook); look.Before(end) && sleepUntil(ctx, look) == nil; look = look.Add(clockLook) {
		now, err := wallOffset()
		if err != nil {
			return err
		}
		if step := now - offset; step.Abs() > clockStep {
			if steps++; steps <= clockStepEvents {
				r.journal.Event("clock_step", "", Attributes{"step_ns": step.Nanoseconds()})
			}
			if step.Abs() > largest.Abs() {
				largest = step
			}
		}
		offset = now
	}
	r.journal.Event("clock_watched", "", Attributes{
		"steps": steps, "largest_step_ns": largest.Nanoseconds(), "drift_ns": (offset - first).Nanoseconds()})
	return nil
}

// wallOffset is CLOCK_REALTIME less CLOCK_MONOTONIC_RAW, from the closest of a
// few readings: a process may be kept waiting between two of them.
func wallOffset() (offset time.Duration, err error) {
	best := time.Hour
	for range 5 {
		var before, wall, after unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &before); err != nil {
			return 0, fmt.Errorf("reading CLOCK_MONOTONIC_RAW: %w", err)
		}
		if err := unix.ClockGettime(unix.CLOCK_REALTIME, &wall); err != nil {
			return 0, fmt.Errorf("reading CLOCK_REALTIME: %w", err)
		}
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &after); err != nil {
			return 0, fmt.Errorf("reading CLOCK_MONOTONIC_RAW: %w", err)
		}
		if apart := time.Duration(after.Nano() - before.Nano()); apart < best {
			best, offset = apart, time.Duration(wall.Nano()-before.Nano()-int64(apart)/2)
		}
	}
	return offset, nil
}
