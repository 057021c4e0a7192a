package pace

import (
	"context"
	"testing"
	"time"
)

func newPace(t *testing.T, ctx context.Context, start time.Time, interval, duration time.Duration) *Pace {
	t.Helper()
	p, err := New(ctx, start, interval, duration)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func TestPace(t *testing.T) {
	const interval, ticks = 5 * time.Millisecond, 20
	start := time.Now().Add(10 * time.Millisecond)
	pace := newPace(t, t.Context(), start, interval, ticks*interval)
	n := int64(0)
	for pace.Next() {
		if time.Now().Before(start.Add(time.Duration(n) * interval)) {
			t.Fatalf("sample %d is early", n)
		}
		n++
	}
	r := pace.Report()
	if r.Sampled != n || r.Sampled+r.Missed() != ticks || r.Missed() < 0 || r.LateMax <= 0 {
		t.Errorf("%d samples, %+v", n, r)
	}
}

// TestPaceCountsWhatItMissed: a source that needs three intervals loses two ticks of three.
func TestPaceCountsWhatItMissed(t *testing.T) {
	const interval = 10 * time.Millisecond
	pace := newPace(t, t.Context(), time.Now(), interval, 30*interval)
	for pace.Next() {
		time.Sleep(interval*5/2 + time.Millisecond)
	}
	if r := pace.Report(); r.Ticks != 30 || r.Missed() < 15 || r.AchievedInterval < 2*interval {
		t.Errorf("%+v", r)
	}
}

// TestPaceEndsWithItsContext: before its first tick and while it waits for the next.
func TestPaceEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	running := newPace(t, ctx, time.Now(), time.Hour, 0)
	if !running.Next() {
		t.Fatal("no first tick")
	}
	future := newPace(t, ctx, time.Now().Add(time.Hour), time.Hour, 0)
	time.AfterFunc(time.Millisecond, cancel)
	for _, pace := range []*Pace{running, future, newPace(t, ctx, time.Now().Add(time.Hour), time.Hour, 0)} {
		if pace.Next() {
			t.Error("a tick after the end")
		}
	}
	if r := running.Report(); r.Sampled != 1 || r.Missed() != 0 {
		t.Errorf("%+v", r)
	}
}

func TestHistogramMedian(t *testing.T) {
	h := newHistogram(time.Millisecond)
	if h.median() != 0 {
		t.Error("an empty histogram has a median")
	}
	for _, d := range []time.Duration{900, 1000, 1100, 1e6, 1e6} {
		h.add(d * time.Microsecond)
	}
	if m := h.median(); m < 1100*time.Microsecond || m > 1102*time.Microsecond {
		t.Errorf("median %v", m)
	}
}
