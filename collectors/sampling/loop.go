package sampling

import (
	"context"
	"time"

	"dumbbell/collectors/pace"
	"dumbbell/collectors/row"
)

// selfInterval is that of rows about the loop itself.
const selfInterval = time.Second

// An Output takes rows: a spool, or the standard output.
type Output interface {
	// Add lets a function add rows, and returns its error.
	Add(func(*row.Rows) error) error
	// FlushDue writes the rows if they should not wait for the next call, which is
	// expected after the given time.
	FlushDue(next time.Duration) error
}

// A Loop samples sources at each tick. What goes wrong with a source stops
// nothing; only an output that cannot be written does.
type Loop struct {
	Sources  Sources
	Output   Output
	Interval time.Duration // between ticks
	Self     row.Series    // of a row about the loop, once a second; empty: none
	Reported time.Time     // when such a row was written last

	// Failed is told the first failure of a source: one that lasts would repeat at
	// every tick.
	Failed func(error)

	pace   *pace.Pace
	tick   func(*row.Rows) error // sample, made once
	failed bool
}

// Run samples from start on for the duration, 0 of which has no end, or until
// the context ends. Its error is the output's.
func (l *Loop) Run(ctx context.Context, start time.Time, duration time.Duration) error {
	p, err := pace.New(ctx, start, l.Interval, duration)
	if err != nil {
		return err
	}
	defer p.Close()
	l.pace, l.tick = p, l.sample
	for p.Next() {
		if err := l.Sample(); err != nil {
			return err
		}
	}
	return nil
}

// Sample samples now. After Run it is beside the ticks.
func (l *Loop) Sample() error { return l.Add(l.tick) }

// Add adds rows to the output.
func (l *Loop) Add(add func(*row.Rows) error) error {
	if err := l.Output.Add(add); err != nil && !l.failed {
		l.failed = true
		l.Failed(err)
	}
	return l.Output.FlushDue(l.Interval)
}

func (l *Loop) sample(rows *row.Rows) error {
	err := l.Sources.Sample(rows)
	if now := time.Now(); l.Self != "" && now.Sub(l.Reported) >= selfInterval {
		l.Reported = now
		rows.Begin(l.Self)
		l.pace.Report().AddFields(rows)
		rows.End(now)
	}
	return err
}

// Report tells how well Run kept time until now. It is zero where Run has not
// begun.
func (l *Loop) Report() pace.Report {
	if l.pace == nil {
		return pace.Report{}
	}
	return l.pace.Report()
}
