// Package pace says when samples are due, and counts those that were missed.
package pace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"dumbbell/collectors/row"

	"golang.org/x/sys/unix"
)

// A Report tells how well a sampler kept time.
type Report struct {
	Ticks            int64         // multiples of the interval that have passed
	Sampled          int64         // of them, those at which samples were taken
	AchievedInterval time.Duration // the median between two samples
	LateMax          time.Duration // the longest that a sample was late
}

// Missed is the number of ticks without a sample.
func (r Report) Missed() int64 { return r.Ticks - r.Sampled }

// A Pace is a sequence of ticks: the multiples of an interval from a start on.
//
// It waits for a timerfd in Go's poller, which costs one wake-up. Go's runtime
// interrupts a thread that sleeps in the kernel for 10 ms to let others run, and
// its own timers wake a second thread.
type Pace struct {
	timer     *os.File
	conn      syscall.RawConn // of the timer
	unwatch   func() bool     // of the context
	start     time.Time
	interval  time.Duration
	ticks     int64 // 0: without end
	next      int64
	due       time.Time // of the next tick
	setting   unix.ItimerSpec
	previous  time.Time
	sampled   int64
	lateMax   time.Duration
	intervals *histogram
}

// New starts a pace. It ends after the duration, whose end itself is no
// tick, or with the context; a duration of 0 has no end.
func New(ctx context.Context, start time.Time, interval, duration time.Duration) (*Pace, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("opening a timer: %w", err)
	}
	timer := os.NewFile(uintptr(fd), "timerfd")
	conn, err := timer.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening a timer: %w", err), timer.Close())
	}
	return &Pace{
		timer: timer, conn: conn, unwatch: context.AfterFunc(ctx, func() { timer.SetReadDeadline(time.Now()) }),
		start: start, interval: interval, ticks: int64((duration + interval - 1) / interval),
		intervals: newHistogram(interval),
	}, nil
}

// Close releases the timer.
func (p *Pace) Close() error {
	p.unwatch()
	return p.timer.Close()
}

// Next sleeps until the next tick is due and reports whether there was one:
// not after the end. Ticks that have passed meanwhile are missed; late is not
// missed until the next tick is due.
func (p *Pace) Next() bool {
	if p.sampled > 0 {
		p.next = max(p.next+1, int64(time.Since(p.start)/p.interval))
	}
	if p.ticks > 0 && p.next >= p.ticks {
		return false
	}
	p.due = p.start.Add(time.Duration(p.next) * p.interval)
	if p.conn.Read(p.isDue) != nil {
		return false
	}
	now := time.Now()
	p.lateMax = max(p.lateMax, now.Sub(p.due))
	if p.sampled > 0 {
		p.intervals.add(now.Sub(p.previous))
	}
	p.previous = now
	p.sampled++
	return true
}

// isDue sets the timer unless the next tick is due.
func (p *Pace) isDue(fd uintptr) bool {
	d := time.Until(p.due)
	if d <= 0 {
		return true
	}
	p.setting.Value = unix.NsecToTimespec(d.Nanoseconds())
	unix.TimerfdSettime(int(fd), 0, &p.setting, nil)
	return false
}

// Report tells how the pace was kept until now.
func (p *Pace) Report() Report {
	ticks := max(0, int64(time.Since(p.start)/p.interval)+1)
	if p.ticks > 0 {
		ticks = min(ticks, p.ticks)
	}
	return Report{Ticks: max(ticks, p.sampled), Sampled: p.sampled, AchievedInterval: p.intervals.median(), LateMax: p.lateMax}
}

// AddFields writes the report to a row.
func (r Report) AddFields(rows *row.Rows) {
	rows.Int("ticks", r.Ticks)
	rows.Int("sampled", r.Sampled)
	rows.Int("missed", r.Missed())
	rows.Int("achieved_interval_ns", r.AchievedInterval.Nanoseconds())
	rows.Int("late_max_ns", r.LateMax.Nanoseconds())
}

// SleepUntil sleeps to a moment of the monotonic clock, or until the context
// ends, whose error it then returns. Go's timers can be a millisecond late,
// since epoll_wait counts milliseconds; the kernel wakes us for the rest.
func SleepUntil(ctx context.Context, t time.Time) error {
	const rest = 2 * time.Millisecond
	if d := time.Until(t) - rest; d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
	}
	for d := time.Until(t); d > 0; d = time.Until(t) {
		ts := unix.NsecToTimespec(d.Nanoseconds())
		unix.Nanosleep(&ts, nil) // cut short by a signal, it is repeated
	}
	return ctx.Err()
}

// A histogram finds the median of intervals near an expected one to 0.1 % of
// it, in constant memory however long a run is.
type histogram struct {
	width  time.Duration
	counts [4096]uint64 // the last one also counts what is longer
	total  uint64
}

func newHistogram(expected time.Duration) *histogram {
	return &histogram{width: max(expected/1000, 1)}
}

func (h *histogram) add(d time.Duration) {
	h.counts[min(int(d/h.width), len(h.counts)-1)]++
	h.total++
}

// median is 0 for an empty histogram.
func (h *histogram) median() time.Duration {
	var below uint64
	for i, n := range h.counts {
		below += n
		if n > 0 && below >= (h.total+1)/2 {
			return time.Duration(i)*h.width + h.width/2
		}
	}
	return 0
}
