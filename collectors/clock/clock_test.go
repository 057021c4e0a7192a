package clock

import (
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestClockOfABusyMachine: the thread that relates two clocks is kept waiting
// between them, all times but one.
func TestClockOfABusyMachine(t *testing.T) {
	const wait = 10 * time.Millisecond
	for undisturbed := range readings {
		reading := 0
		c, err := newClock(func(clock int32, ts *unix.Timespec) error {
			err := unix.ClockGettime(clock, ts)
			if reading != undisturbed {
				time.Sleep(wait)
			}
			reading++
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		var before, after unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &before); err != nil {
			t.Fatal(err)
		}
		got := c.Mono(time.Now())
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &after); err != nil {
			t.Fatal(err)
		}
		if early, late := time.Duration(before.Nano())-got, got-time.Duration(after.Nano()); max(early, late) > wait/2 {
			t.Errorf("reading %d was not disturbed: CLOCK_MONOTONIC is %v, from %v to %v was read", undisturbed,
				got, time.Duration(before.Nano()), time.Duration(after.Nano()))
		}
	}
}

// TestClosest: of several readings that is taken which took the least time.
func TestClosest(t *testing.T) {
	waits := []time.Duration{4, 3, 1, 5, 2, 6, 7, 8, 9, 10}
	var took []time.Duration // by the readings; a busy machine makes any of them longer
	best, shortest := Closest(func() int {
		began := time.Now()
		time.Sleep(waits[len(took)] * time.Millisecond)
		took = append(took, time.Since(began))
		return len(took) - 1
	})
	if len(took) != readings || took[best] != slices.Min(took) || shortest < took[best] {
		t.Errorf("reading %d, which took %v, of those that took %v", best, shortest, took)
	}
	n := 0
	if best, shortest = Closest(func() int { n++; return n }); shortest > 100*time.Microsecond || best != n && shortest <= time.Microsecond {
		t.Errorf("reading %d of %d, which took %v", best, n, shortest)
	}
}

func BenchmarkNow(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Now()
	}
}
