// Package clockwatch finds the steps of the wall clock while a phase runs.
package clockwatch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"dumbbell/agent/journal"
	"dumbbell/collectors/clock"

	"golang.org/x/sys/unix"
)

const (
	// clockLook is how often the clock is read while nobody sets it.
	clockLook = time.Second

	// fastSlew, in clockLook, is more than a synchronised clock is slewed by: it
	// disturbs a measurement as a step does, and counts as one.
	fastSlew = 5 * time.Millisecond

	// clockStepEvents is how many steps are recorded one by one.
	clockStepEvents = 20
)

// Watch records every step of the wall clock until a time. The kernel tells of
// one at once, since the clock may be set back before the next look.
func Watch(ctx context.Context, log *journal.Journal, end time.Time) error {
	alarm, err := openClockAlarm()
	if err != nil {
		return err
	}
	defer alarm.Close()
	defer context.AfterFunc(ctx, func() { alarm.Close() })()
	watch, err := newClockWatch(readClocks)
	if err != nil {
		return err
	}
	for now := time.Now(); now.Before(end) && ctx.Err() == nil; now = time.Now() {
		if err := awaitClockSet(alarm, now.Add(min(clockLook, end.Sub(now)))); err != nil {
			return err
		}
		step, err := watch.look()
		if err != nil {
			return err
		}
		if step != 0 && watch.steps <= clockStepEvents {
			log.Event("clock_step", "", journal.Attributes{"step_ns": step.Nanoseconds()})
		}
	}
	log.Event("clock_watched", "", journal.Attributes{
		"steps": watch.steps, "largest_step_ns": watch.largest.Nanoseconds(), "drift_ns": watch.drift().Nanoseconds()})
	return nil
}

// A clockWatch finds the steps of the wall clock. NTP slews CLOCK_REALTIME and
// CLOCK_MONOTONIC alike: between them only a step changes anything, however
// small it is. CLOCK_MONOTONIC_RAW, which nothing slews, shows the slewing.
type clockWatch struct {
	read        func() (clocks, error)
	first, last clocks
	steps       int
	largest     time.Duration
}

func newClockWatch(read func() (clocks, error)) (*clockWatch, error) {
	now, err := read()
	return &clockWatch{read: read, first: now, last: now}, err
}

// look returns by how much the clock was set since it was looked at last, or
// slewed if that was fast; else 0.
func (w *clockWatch) look() (step time.Duration, err error) {
	now, err := w.read()
	if err != nil {
		return 0, err
	}
	before := w.last
	w.last = now
	step = (now.wall - now.mono) - (before.wall - before.mono)
	if step.Abs() <= now.apart+before.apart { // it may be that of the readings
		step = 0
	}
	if slew := (now.mono - now.raw) - (before.mono - before.raw); slew.Abs() > fastSlew {
		step += slew
	}
	if step != 0 {
		w.steps++
	}
	if step.Abs() > w.largest.Abs() {
		w.largest = step
	}
	return step, nil
}

// drift is by how much the wall clock has moved against CLOCK_MONOTONIC_RAW.
func (w *clockWatch) drift() time.Duration {
	return (w.last.wall - w.last.raw) - (w.first.wall - w.first.raw)
}

// clocks are what three clocks said within a short time.
type clocks struct{ wall, mono, raw, apart time.Duration }

func readClocks() (clocks, error) {
	var failure error
	get := func(clock int32) time.Duration {
		var ts unix.Timespec
		if err := unix.ClockGettime(clock, &ts); err != nil {
			failure = fmt.Errorf("reading clock %d of clock_gettime(2): %w", clock, err)
		}
		return time.Duration(ts.Nano())
	}
	now, apart := clock.Closest(func() clocks {
		return clocks{wall: get(unix.CLOCK_REALTIME), mono: get(unix.CLOCK_MONOTONIC), raw: get(unix.CLOCK_MONOTONIC_RAW)}
	})
	now.apart = apart
	return now, failure
}

// openClockAlarm opens a timer that cannot be read until the wall clock is set.
func openClockAlarm() (*os.File, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watching the clock: %w", err)
	}
	timer := os.NewFile(uintptr(fd), "timerfd")
	never := unix.ItimerSpec{Value: unix.Timespec{Sec: math.MaxInt64}}
	if err := unix.TimerfdSettime(fd, unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET, &never, nil); err != nil {
		return nil, errors.Join(fmt.Errorf("watching the clock: %w", err), timer.Close())
	}
	return timer, nil
}

// awaitClockSet waits until the wall clock is set, at the latest until a time,
// or until the alarm is closed.
func awaitClockSet(alarm *os.File, latest time.Time) error {
	err := alarm.SetReadDeadline(latest)
	if err == nil {
		_, err = alarm.Read(make([]byte, 8))
	}
	if errors.Is(err, unix.ECANCELED) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, os.ErrClosed) {
		return nil
	}
	return fmt.Errorf("watching the clock: %w", err)
}
