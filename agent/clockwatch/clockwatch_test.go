package clockwatch

import (
	"testing"
	"time"
)

// TestClockWatch reads this machine's clocks, and adds to them what setting and
// slewing a clock does.
func TestClockWatch(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		set, slewed, want time.Duration
	}{
		"nothing":                {0, 0, 0},
		"forward by 2 ms":        {2 * ms, 0, 2 * ms},
		"back by 4 ms":           {-4 * ms, 0, -4 * ms},
		"by an hour":             {time.Hour, 0, time.Hour},
		"slewed by 500 ppm":      {0, ms / 2, 0},
		"set while it is slewed": {-2 * ms, ms / 2, -2 * ms},
		"slewed by a twelfth":    {0, 83 * ms, 83 * ms},
		"corrected by chronyd":   {0, -2 * ms, 0},
		"slewed fast, set too":   {3 * ms, 10 * ms, 13 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			var set, slewed time.Duration
			watch, err := newClockWatch(func() (clocks, error) {
				now, err := readClocks()
				now.wall += set + slewed
				now.mono += slewed
				return now, err
			})
			if err != nil {
				t.Fatal(err)
			}
			var steps []time.Duration
			for look := range 20 {
				if look == 10 {
					set, slewed = c.set, c.slewed
				}
				time.Sleep(time.Millisecond)
				step, err := watch.look()
				if err != nil {
					t.Fatal(err)
				}
				if step != 0 {
					steps = append(steps, step)
				}
			}
			want := 1
			if c.want == 0 {
				want = 0
			}
			const readingError = 200 * time.Microsecond
			if len(steps) != want || watch.steps != want || (watch.largest-c.want).Abs() > readingError {
				t.Fatalf("steps %v, %d counted, the largest %v; want %v", steps, watch.steps, watch.largest, c.want)
			}
			if drift := watch.drift(); (drift - c.set - c.slewed).Abs() > readingError {
				t.Errorf("drift %v, want %v", drift, c.set+c.slewed)
			}
		})
	}
}

// TestClockAlarm: while nobody sets the clock, the alarm waits to the time given, or until it is closed.
func TestClockAlarm(t *testing.T) {
	alarm, err := openClockAlarm()
	if err != nil {
		t.Fatal(err)
	}
	latest := time.Now().Add(20 * time.Millisecond)
	if err := awaitClockSet(alarm, latest); err != nil || time.Now().Before(latest) {
		t.Errorf("%v, %v too early", err, time.Until(latest))
	}
	time.AfterFunc(10*time.Millisecond, func() { alarm.Close() })
	latest = time.Now().Add(time.Minute)
	if err := awaitClockSet(alarm, latest); err != nil || time.Now().After(latest) {
		t.Errorf("%v", err)
	}
}
