// Package phase has what the actions of a phase share while it runs: its plan,
// journal and rows, their processes, and who else comes to its ports.
package phase

import (
	"context"
	"errors"
	"sync"
	"time"

	"dumbbell/agent/journal"
	"dumbbell/agent/plan"
	"dumbbell/collectors/clock"
	"dumbbell/collectors/spool"
)

// GracePeriod is how long processes may run after the end of the phase, to
// drain queues and to write their reports.
const GracePeriod = 10 * time.Second

// A Run is one execution of a plan in its run directory.
type Run struct {
	Dir       string
	Plan      *plan.Plan
	Clock     clock.Clock
	Journal   *journal.Journal
	Rows      *spool.Writer
	T0        time.Time      // with Go's monotonic reading
	Begun     chan struct{}  // closed when T0 is known
	Servers   sync.WaitGroup // actions that serve
	Strangers Strangers      // at this host's ports

	mu       sync.Mutex
	failures []error
}

// Open opens the journal of a run directory.
func Open(dir, version string) (*Run, error) {
	clock, err := clock.New()
	if err != nil {
		return nil, err
	}
	log, err := journal.Open(dir, version, clock)
	if err != nil {
		return nil, err
	}
	return &Run{Dir: dir, Clock: clock, Journal: log, Begun: make(chan struct{})}, nil
}

// Fail remembers a failure that makes the run's final state "failed".
func (r *Run) Fail(err error) {
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.failures = append(r.failures, err)
	}
}

// Failed returns what has gone wrong so far.
func (r *Run) Failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.failures...)
}

// Until is a context that ends at a time from T0, whenever that becomes known.
func (r *Run) Until(ctx context.Context, end time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-r.Begun:
			time.AfterFunc(time.Until(r.T0.Add(end)), cancel)
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
