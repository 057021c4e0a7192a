package kind

import (
	"context"
	"sync"
	"time"

	"dumbbell/agent/phase"
	"dumbbell/agent/plan"
	"dumbbell/collectors/pace"
)

// StartServers starts this host's servers, and returns when they have been
// started. They wait for others: they are started before their host says that
// it is armed, so that the start can follow at once, and end when the phase is
// over, or when no start comes. What goes wrong is a
// failure of the run. Those that the agent itself is listen already (Open).
func StartServers(ctx context.Context, r *phase.Run) {
	for _, a := range r.Plan.Own().Actions {
		task := TaskOf(a)
		if !task.Serves {
			continue
		}
		started := make(chan struct{})
		ended := make(chan struct{})
		r.Servers.Go(func() {
			defer close(ended)
			r.Fail(task.run(ctx, r, a, func() { close(started) }))
		})
		select {
		case <-started:
		case <-ended:
		}
	}
}

// Perform does what is not a server, each at its time. One failure does not stop
// the rest: what was measured beside it may explain it.
func Perform(ctx context.Context, r *phase.Run, ends Ends) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, a := range r.Plan.Own().Actions {
		task := TaskOf(a)
		if task.Serves {
			continue // since the host was armed
		}
		all.Go(func() {
			if end := ends[a.String()]; end != nil {
				r.Fail(end.run(ctx, r, a))
			} else {
				r.Fail(task.run(ctx, r, a, func() {}))
			}
		})
	}
}

func (t *Task) run(ctx context.Context, r *phase.Run, a plan.Action, started func()) error {
	if t.Run != nil {
		return t.Run(ctx, r, a, started)
	}
	_, err := runPlain(ctx, r, a, started)
	return err
}

// First is when the first action of this host begins, from t0; 0 if none is before.
func First(p *plan.Plan) (first time.Duration) {
	for _, a := range p.Own().Actions {
		if task := TaskOf(a); !task.Serves {
			first = min(first, a.At-task.Ahead)
		}
	}
	return first
}

// defaultLead is what a host needs that only waits, or that begins at t0.
const defaultLead = 500 * time.Millisecond

// Lead is how long before t0 this host needs to have it, if its sampling
// begins as long before t0 as is given.
func Lead(p *plan.Plan, sampling time.Duration) time.Duration {
	longest := max(defaultLead, min(sampling+defaultLead/2, clientLead))
	for _, a := range p.Own().Actions {
		if ahead := TaskOf(a).Lead; ahead > 0 {
			longest = max(longest, ahead-a.At)
		}
	}
	return longest
}

// NewProcess prepares the process of an action.
func NewProcess(ctx context.Context, r *phase.Run, a plan.Action) (*phase.Process, error) {
	c := TaskOf(a).Command(r.Plan, a, r.T0)
	if port, waits := Port(r.Plan, a); waits {
		c.Port = &port
	}
	return r.NewProcess(ctx, a, c)
}

// runUntil runs a process that may end on its own, and ends it when its time is
// over, which is no failure. It returns what runPlain does.
func runUntil(ctx context.Context, r *phase.Run, a plan.Action, end time.Duration, started func()) (said []byte, err error) {
	ctx, cancel := r.Until(ctx, end)
	defer cancel()
	return runPlain(ctx, r, a, started)
}

// runPlain runs a process until it ends, from its planned time, or from now on
// if it serves, and returns its last words on standard error.
func runPlain(ctx context.Context, r *phase.Run, a plan.Action, started func()) (said []byte, err error) {
	p, err := NewProcess(ctx, r, a)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	if !TaskOf(a).Serves && pace.SleepUntil(ctx, r.T0.Add(a.At)) != nil {
		return nil, nil
	}
	if err := p.Start(); err != nil {
		return nil, err
	}
	started()
	err = p.Wait()
	return p.Said(), err
}
