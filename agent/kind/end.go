package kind

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"dumbbell/agent/journal"
	"dumbbell/agent/phase"
	"dumbbell/agent/plan"
	"dumbbell/collectors/pace"
	"dumbbell/collectors/row"
	"dumbbell/collectors/tcpinfo"
)

// endReports is how many reports of one end wait while the disk is slow.
const endReports = 1024

// An End is this host's sending or receiving end of a flow that the agent
// itself makes. What listens does so before the host says that it is armed, so
// that a port that is taken or a missing route is found then.
type End struct {
	flow        *plan.Flow
	side        string // sender or receiver of the data
	measurement string // of the reports
	execute     func(ctx context.Context, t0 time.Time) (result any, err error)
	close       func() error
	reports     chan report
	begins      time.Duration       // when its first data is planned, from t0
	ends        time.Duration       // when it is ended, from t0; 0 if it ends by itself
	tapped      bool                // its first data is heard on the wire
	started     chan time.Time      // at which the first datagram left, or the first fetch began
	sockets     *tcpinfo.OwnSockets // to be sampled; nil for none
}

// A report is the state of one end at a moment, or what became of one fetch.
type report interface {
	Time() time.Time
	AddFields(rows *row.Rows)
}

// Ends are this host's ends of the flows that the agent makes, by their actions.
type Ends map[string]*End

// Open makes them.
func Open(p *plan.Plan) (Ends, error) {
	ends := make(Ends)
	for _, a := range p.Own().Actions {
		open := TaskOf(a).Open
		if open == nil {
			continue
		}
		e, err := open(p, p.Flow(a.Flow))
		if err != nil {
			ends.Close()
			return nil, fmt.Errorf("%s: %w", a, err)
		}
		ends[a.String()] = e
	}
	return ends, nil
}

// Close ends them all.
func (ends Ends) Close() {
	for _, e := range ends {
		e.close()
	}
}

// Sockets are those of them that are to be sampled.
func (ends Ends) Sockets() (all []*tcpinfo.OwnSockets) {
	for _, e := range ends {
		if e.sockets != nil {
			all = append(all, e.sockets)
		}
	}
	return all
}

func newEnd(f *plan.Flow, measurement, side string) *End {
	return &End{
		flow: f, measurement: measurement, side: side, begins: f.Start,
		reports: make(chan report, endReports), started: make(chan time.Time, 1),
	}
}

// run runs one end of a flow and leaves its result in the run directory.
func (e *End) run(ctx context.Context, r *phase.Run, a plan.Action) error {
	ahead := max(TaskOf(a).Ahead, 100*time.Millisecond) // it sleeps to its first data on its own, more exactly
	if pace.SleepUntil(ctx, r.T0.Add(a.At-ahead)) != nil {
		return nil
	}
	r.Journal.Event("flow_launched", a.Flow, journal.Attributes{"action": a.Kind})
	written := make(chan error)
	go func() { written <- e.writeReports(r) }()
	heard := make(chan error, 1)
	if e.tapped {
		go func() { heard <- e.hear(ctx, r) }()
	} else {
		heard <- nil
	}
	if e.ends > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, r.T0.Add(e.ends))
		defer cancel()
	}
	result, err := e.execute(ctx, r.T0)
	close(e.reports)
	close(e.started)
	err = errors.Join(err, <-written, <-heard)
	b, encodeErr := json.Marshal(result)
	if encodeErr == nil {
		path := filepath.Join(r.Dir, Of(e.flow).Program+"-"+a.Flow+"-"+e.side+".json")
		encodeErr = os.WriteFile(path, append(b, '\n'), 0o644)
	}
	err = errors.Join(err, encodeErr)
	if err != nil {
		return fmt.Errorf("%s: %w", a, err)
	}
	return nil
}

// hear waits for the first data of the flow, and records when it left.
func (e *End) hear(ctx context.Context, r *phase.Run) error {
	diag, err := tcpinfo.Dial()
	if err != nil {
		return err
	}
	defer diag.Close()
	planned := r.T0.Add(e.begins)
	if pace.SleepUntil(ctx, planned.Add(-tapLead)) == nil {
		listenForData(ctx, r, diag, e.flow, planned, greeting{})()
	}
	return nil
}

// writeReports writes the reports of one end of a flow to the spool, and when
// its first data did, until both channels are closed. It has a goroutine of its
// own, so that a slow disk delays no data.
func (e *End) writeReports(r *phase.Run) (failure error) {
	series := row.NewSeries(e.measurement, r.Plan.Tags().With("flow", e.flow.Name, "side", e.side))
	started := e.started
	for reports := e.reports; reports != nil || started != nil; {
		select {
		case first, ok := <-started:
			if ok {
				planned := r.T0.Add(e.begins)
				r.Journal.EventAt(first, "flow_first_data", e.flow.Name, journal.Attributes{
					"planned_unix_ns": planned.UnixNano(), "error_ns": first.Sub(planned).Nanoseconds()})
			}
			started = nil
		case report, ok := <-reports:
			if !ok {
				reports = nil
				continue
			}
			err := r.Rows.Add(func(rows *row.Rows) error {
				rows.Begin(series)
				report.AddFields(rows)
				rows.End(report.Time())
				return nil
			})
			err = errors.Join(err, r.Rows.FlushDue(r.Plan.SamplingInterval))
			if failure == nil {
				failure = err
			}
		}
	}
	return failure
}
