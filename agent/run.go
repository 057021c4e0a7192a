package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"dumbbell/agent/archive"
	"dumbbell/agent/clockwatch"
	"dumbbell/agent/hold"
	"dumbbell/agent/journal"
	"dumbbell/agent/kind"
	"dumbbell/agent/observed"
	"dumbbell/agent/phase"
	"dumbbell/agent/plan"
	"dumbbell/agent/process"
	"dumbbell/agent/sampler"
	"dumbbell/collectors/pace"
	"dumbbell/collectors/spool"
)

const startPoll = 20 * time.Millisecond

// Only tests change these.
var (
	// armTimeout ends an agent whose controller has vanished.
	armTimeout = 5 * time.Minute

	// hangTimeout is how much longer than the phase's grace period the agent itself may take.
	hangTimeout = 30 * time.Second
)

// A run is the execution of a plan by this process.
type run struct {
	*phase.Run
	lock string // of the host; empty for none
}

// Run executes the plan in a run directory and returns the final state. The
// error says why that is not "done".
func Run(ctx context.Context, dir, lock, version string) (state string, err error) {
	r, err := phase.Open(dir, version)
	if err != nil {
		return "failed", err
	}
	if err = os.Remove(archive.File(dir)); err == nil || errors.Is(err, fs.ErrNotExist) { // of an earlier agent
		err = errors.Join(run{r, lock}.execute(ctx), observed.After(dir, r.Journal))
	}
	switch {
	case ctx.Err() != nil:
		state, err = "aborted", errors.Join(errors.New("ended by a signal"), err)
	case errors.Is(err, errNoStart):
		state = "aborted"
	case err != nil:
		state = "failed"
	default:
		state = "done"
	}
	return end(r, state, err)
}

func (r run) execute(ctx context.Context) (err error) {
	if r.Plan, err = kind.ReadPlan(filepath.Join(r.Dir, "plan.json")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kind.Forget(r.Dir, r.Plan)) }()
	if err := kind.Prepare(ctx, r.Run); err != nil {
		return fmt.Errorf("%s: %w", r.Plan.Host, err)
	}
	if err := r.holdHost(armTimeout + r.Plan.Duration + phase.GracePeriod); err != nil {
		return fmt.Errorf("%s: %w", r.Plan.Host, err)
	}
	defer func() { err = errors.Join(err, r.holdHost(0)) }()
	rows, tornBytes, err := spool.Open(filepath.Join(r.Dir, "spool.lp"), r.Clock)
	if err != nil {
		return err
	}
	r.Rows = rows
	defer func() { err = errors.Join(err, rows.Close()) }()
	r.Strangers.Count(kind.Ports(r.Plan))
	defer r.Strangers.Close()
	ends, err := kind.Open(r.Plan)
	if err != nil {
		return fmt.Errorf("%s: %w", r.Plan.Host, err)
	}
	defer ends.Close()
	samples, err := sampler.New(r.Plan, r.Clock, r.Journal, rows, ends.Sockets())
	if err != nil {
		return err
	}
	defer samples.Close()
	if n := len(ends); n > 0 { // each has a thread of its own, mostly in system calls
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + n)
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer r.Servers.Wait()
	defer cancel(nil)
	kind.StartServers(ctx, r.Run)
	if err := r.Failed(); err != nil {
		return fmt.Errorf("%s: %w", r.Plan.Host, err)
	}
	if err := observed.Before(r.Dir, r.Plan.Phase, r.Journal); err != nil {
		return err
	}
	armed := journal.Attributes{"nice": process.Niceness()}
	if tornBytes > 0 {
		armed["torn_bytes"] = tornBytes
	}
	r.Journal.Event("armed", "", armed)
	lead := kind.Lead(r.Plan, sampler.Lead(r.Plan))
	r.Journal.Status.Lead = int64(lead)
	if err := r.Journal.State("armed", ""); err != nil {
		return err
	}
	t0, err := r.awaitStart(ctx)
	if err != nil {
		return err
	}
	r.Journal.Event("start_received", "", journal.Attributes{"t0_unix_ns": t0})
	r.T0 = r.Clock.At(t0)
	if margin := time.Until(r.T0); margin < lead {
		return fmt.Errorf("start arrived %d ms too late", (lead - margin).Milliseconds())
	}
	close(r.Begun)
	over := time.AfterFunc(time.Until(r.T0.Add(r.Plan.Duration+phase.GracePeriod)), func() { cancel(context.DeadlineExceeded) })
	defer over.Stop()
	if err := r.Journal.State("waiting", ""); err != nil {
		return err
	}
	for _, f := range r.Plan.Flows {
		if f.SrcHost == r.Plan.Host {
			r.Journal.Event("flow_planned", f.Name, journal.Attributes{"planned_unix_ns": t0 + int64(f.Start)})
		}
	}
	// Whatever hangs, the phase ends: systemd then ends what the agent has
	// started, and lets another finish (Finish).
	hung := time.AfterFunc(time.Until(r.T0.Add(r.Plan.Duration+phase.GracePeriod+hangTimeout)), func() {
		time.AfterFunc(process.KillDelay, func() { os.Exit(1) }) // even if it cannot say so
		r.Journal.State("failed", fmt.Sprintf("it hung, and was ended %v after the end of the phase", phase.GracePeriod+hangTimeout))
		kind.Forget(r.Dir, r.Plan)
		os.Exit(1)
	})
	defer hung.Stop()
	if err := hold.PrepareUndo(r.Dir, r.Plan.Own().Restore); err != nil {
		return err
	}
	return r.perform(ctx, samples, ends)
}

// holdHost keeps the host for this run for a time from now, and a margin.
func (r run) holdHost(d time.Duration) error {
	if r.lock == "" {
		return nil
	}
	return hold.Take(r.lock, hold.Host{RunID: r.Plan.Holder, UntilUnixNs: time.Now().Add(d + hold.Margin).UnixNano()})
}

// perform executes the actions and samples.
func (r run) perform(ctx context.Context, samples *sampler.Sampler, ends kind.Ends) error {
	var all sync.WaitGroup
	all.Go(func() { kind.Perform(ctx, r.Run, ends) })
	all.Go(func() { r.Fail(samples.Run(ctx, r.T0)) })
	all.Go(func() { r.Fail(clockwatch.Watch(ctx, r.Journal, r.T0.Add(r.Plan.Duration))) })
	if pace.SleepUntil(ctx, r.T0.Add(kind.First(r.Plan))) == nil {
		r.Fail(r.Journal.State("running", ""))
	}
	all.Wait()
	r.Servers.Wait()
	r.Fail(samples.Finish(ctx))
	pace.SleepUntil(ctx, r.T0.Add(max(r.Plan.Duration, r.Plan.Own().RestoreAt)))
	r.Fail(hold.RestorePath(r.Dir, r.Journal))
	r.Strangers.Report(r.Journal)
	return r.Failed()
}

// errNoStart says that the controller never started an armed agent.
var errNoStart = errors.New("no start came")

// awaitStart waits for start.json and returns t0 in ns since 1970.
func (r run) awaitStart(ctx context.Context) (int64, error) {
	path := filepath.Join(r.Dir, "start.json")
	giveUp := time.Now().Add(armTimeout)
	for time.Now().Before(giveUp) {
		b, err := os.ReadFile(path)
		if err == nil {
			var start plan.Start
			err = plan.DecodeStrict(b, &start)
			if err == nil {
				return start.T0UnixNs, nil
			}
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) { // not just half written
				return 0, fmt.Errorf("%s: %w", path, err)
			}
		} else if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission) { // not just about to be handed over
			return 0, fmt.Errorf("waiting for the start: %w", err)
		}
		if err := pace.SleepUntil(ctx, time.Now().Add(startPoll)); err != nil {
			return 0, err
		}
		if err := r.Failed(); err != nil { // of a server
			return 0, err
		}
	}
	return 0, fmt.Errorf("%w within %v of arming", errNoStart, armTimeout)
}
