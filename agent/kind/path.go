package kind

import (
	"context"
	"errors"
	"fmt"
	"time"

	"dumbbell/agent/journal"
	"dumbbell/agent/phase"
	"dumbbell/agent/plan"
	"dumbbell/collectors/pace"
	"dumbbell/collectors/qdisc"
)

const (
	// pathLead is how long before its time tc is started: it reads its commands
	// from a pipe, so that starting a process makes no change late.
	pathLead = time.Second
)

func init() {
	addTask(Task{
		Kind: "path", Lead: pathLead,
		Check: func(a plan.Action, require plan.Require) {
			require(a.Flow == "" && len(a.Argv) == 0 && !a.Dst.IsValid(), "", "a change of the path has a name and commands alone")
			require(plan.Name.MatchString(a.Name) && a.Name != "restore", ".name", "%q is not a name of letters, digits, _ . and -, or is restore", a.Name)
			require(len(a.Commands) > 0, ".commands", "missing")
			require(plan.Batchable(a.Commands), ".commands", "a word is empty, or has blanks, quotes or #")
		},
		Command: func(_ *plan.Plan, a plan.Action, _ time.Time) phase.Command {
			return phase.Command{Args: []string{"tc", "-batch", "-"}, Output: "path-" + a.Name + ".txt", Urgent: true}
		},
		Run: runPath,
	})
}

// runPath changes the path at the planned time by a prepared batch of tc
// commands, records when it began and ended, and samples what the kernel has
// then. The first command that fails ends the batch and makes the run failed.
func runPath(ctx context.Context, r *phase.Run, a plan.Action, _ func()) error {
	p, err := NewProcess(ctx, r, a)
	if err != nil {
		return err
	}
	defer p.Close()
	stdin, err := p.Cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("preparing %s: %w", a, err)
	}
	planned := r.T0.Add(a.At)
	if pace.SleepUntil(ctx, planned.Add(-pathLead)) != nil {
		return nil
	}
	if err := p.Start(); err != nil {
		return err
	}
	if pace.SleepUntil(ctx, planned) != nil {
		return p.Wait()
	}
	begun := time.Now()
	_, err = stdin.Write([]byte(plan.Batch(a.Commands)))
	err = errors.Join(err, stdin.Close(), p.Wait())
	attributes := journal.Attributes{"name": a.Name, "planned_unix_ns": planned.UnixNano(), "error_ns": begun.Sub(planned).Nanoseconds(),
		"took_ns": time.Since(begun).Nanoseconds(), "ok": err == nil}
	if err != nil {
		attributes["reason"] = err.Error()
	}
	r.Journal.EventAt(begun, "path_changed", "", attributes)
	return errors.Join(err, readBack(r))
}

// readBack samples the queues beside the ticks, the next of which may be long
// in coming.
func readBack(r *phase.Run) error {
	if !r.Plan.Own().Sample.Qdisc {
		return nil
	}
	source, err := qdisc.NewSource(r.Plan.Tags())
	if err != nil {
		return err
	}
	defer source.Close()
	return r.Rows.Add(source.Sample)
}
