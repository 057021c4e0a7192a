package sampling

import (
	"errors"
	"strings"
	"testing"
	"time"

	"dumbbell/collectors/clock"
	"dumbbell/collectors/row"
)

// An output keeps rows, and can be written so many times.
type output struct {
	rows   *row.Rows
	writes int
}

func (o *output) Add(add func(*row.Rows) error) error { return add(o.rows) }

func (o *output) FlushDue(time.Duration) error {
	if o.writes--; o.writes < 0 {
		return errors.New("full")
	}
	return nil
}

// A source writes a row each time, and fails.
type source struct{ series row.Series }

func (s source) Sample(rows *row.Rows) error {
	rows.Begin(s.series)
	rows.Int("n", 1)
	rows.End(time.Now())
	return errors.New("no")
}

func (source) Close() error { return nil }

func newLoop(t *testing.T, writes int) (l *Loop, out *output, failures *[]string) {
	t.Helper()
	clock, err := clock.New()
	if err != nil {
		t.Fatal(err)
	}
	out = &output{rows: row.NewRows(clock), writes: writes}
	failures = new([]string)
	return &Loop{
		Sources: Sources{source{row.NewSeries("often", nil)}, Every(time.Hour, source{row.NewSeries("once", nil)})},
		Output:  out, Interval: 2 * time.Millisecond, Self: row.NewSeries("sampler", nil),
		Failed: func(err error) { *failures = append(*failures, err.Error()) },
	}, out, failures
}

// TestLoop: each source has its interval, a failure stops nothing and is told once.
func TestLoop(t *testing.T) {
	l, out, failures := newLoop(t, 100)
	if err := l.Run(t.Context(), time.Now(), 20*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	r := l.Report()
	got := string(out.rows.Bytes())
	for series, want := range map[string]int64{"often n=1i,": r.Sampled, "once n=1i,": 1, "sampler ticks=": 1} {
		if n := int64(strings.Count(got, series)); n != want || want == 0 {
			t.Errorf("%d rows of %s, not %d:\n%s", n, series, want, got)
		}
	}
	if r.Ticks != 10 || r.Sampled+r.Missed() != 10 || len(*failures) != 1 || (*failures)[0] != "no" {
		t.Errorf("%+v, failures %q", r, *failures)
	}
	if err := l.Sample(); err != nil || l.Report() != r {
		t.Errorf("%v, %+v beside the ticks", err, l.Report())
	}
}

// TestLoopEndsWithItsOutput: what cannot be written ends the loop.
func TestLoopEndsWithItsOutput(t *testing.T) {
	l, out, _ := newLoop(t, 3)
	if err := l.Run(t.Context(), time.Now(), time.Minute); err == nil || err.Error() != "full" {
		t.Errorf("error %v", err)
	}
	if n := strings.Count(string(out.rows.Bytes()), "often "); n != 4 {
		t.Errorf("%d samples", n)
	}
}

// TestNothingAllocated: a tick allocates nothing.
func TestNothingAllocated(t *testing.T) {
	l, out, _ := newLoop(t, 1<<30)
	if err := l.Run(t.Context(), time.Now(), l.Interval); err != nil {
		t.Fatal(err)
	}
	l.Sources = nil
	if n := testing.AllocsPerRun(100, func() { l.Sample(); out.rows.Reset() }); n != 0 {
		t.Errorf("%v allocations a tick", n)
	}
}
