package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"dumbbell/collectors/sample"
	"dumbbell/collectors/spool"
	"dumbbell/collectors/tcpinfo"
	"dumbbell/traffic/http"
	"dumbbell/traffic/udp"
)

const (
	// udpDrain is how long after the end of its flow a receiver waits for the
	// sender's end markers.
	udpDrain = 5 * time.Second

	// httpDrain is how long after the end of its flow a server waits for what the
	// client has sent at last.
	httpDrain = time.Second

	// endReports is how many reports of one end wait while the disk is slow.
	endReports = 1024
)

// An end is this host's sending or receiving end of a flow that the agent
// itself makes. What listens does so before the host says that it is armed, so
// that a port that is taken or a missing route is found then.
type end struct {
	flow        *Flow
	side        string // sender or receiver of the data
	measurement string // of the reports
	execute     func(ctx context.Context, t0 time.Time) (result any, err error)
	close       func() error
	reports     chan report
	begins      time.Duration       // when its first data is planned, from t0
	ends        time.Duration       // when it is ended, from t0; 0 if it ends by itself
	started     chan time.Time      // at which the first datagram left, or the first fetch began
	sockets     *tcpinfo.OwnSockets // to be sampled; nil for none
}

// A report is the state of one end at a moment, or what became of one fetch.
type report interface {
	Time() time.Time
	AddFields(rows *sample.Rows)
}

// newEnds are the ends that the agent itself can be, by the kind of action.
var newEnds = map[string]func(*Plan, *Flow) (*end, error){
	"udp_receive": newUDPReceiver,
	"udp_send":    newUDPSender,
	"http_server": newHTTPServer,
	"http_client": newHTTPClient,
}

// openEnds makes this host's ends of the flows that the agent makes, by their actions.
func openEnds(plan *Plan) (ends map[string]*end, err error) {
	ends = make(map[string]*end)
	for _, a := range plan.Own().Actions {
		newEnd, own := newEnds[a.Kind]
		if !own {
			continue
		}
		e, err := newEnd(plan, plan.Flow(a.Flow))
		if err != nil {
			closeEnds(ends)
			return nil, fmt.Errorf("%s: %w", a, err)
		}
		ends[a.String()] = e
	}
	return ends, nil
}

func closeEnds(ends map[string]*end) {
	for _, e := range ends {
		e.close()
	}
}

func newEnd(f *Flow, measurement, side string) *end {
	return &end{
		flow: f, measurement: measurement, side: side, begins: f.Start,
		reports: make(chan report, endReports), started: make(chan time.Time, 1),
	}
}

func newUDPSender(plan *Plan, f *Flow) (*end, error) {
	e := newEnd(f, "udp", "sender")
	e.begins += f.schedule().First()
	sender, err := udp.NewSender(udp.SenderConfig{
		From:     netip.AddrPortFrom(f.Src, f.ClientPort),
		To:       netip.AddrPortFrom(f.Dst, f.ServerPort),
		Token:    f.token(plan),
		Schedule: f.schedule(),
		Interval: plan.SamplingInterval,
		Started:  func(t time.Time) { e.started <- t },
		Report:   func(r udp.SentReport) { e.reports <- r },
	})
	if err != nil {
		return nil, err
	}
	e.close = sender.Close
	e.execute = func(ctx context.Context, t0 time.Time) (any, error) { return sender.Run(ctx, t0.Add(f.Start)) }
	return e, nil
}

func newUDPReceiver(plan *Plan, f *Flow) (*end, error) {
	e := newEnd(f, "udp", "receiver")
	receiver, err := udp.NewReceiver(udp.ReceiverConfig{
		Listen:   netip.AddrPortFrom(f.Dst, f.ServerPort),
		From:     netip.AddrPortFrom(f.Src, f.ClientPort),
		Token:    f.token(plan),
		Interval: plan.SamplingInterval,
		Report:   func(r udp.ReceivedReport) { e.reports <- r },
	})
	if err != nil {
		return nil, err
	}
	e.close = receiver.Close
	e.ends = f.Start + f.Duration + udpDrain
	e.execute = func(ctx context.Context, _ time.Time) (any, error) { return receiver.Run(ctx) }
	return e, nil
}

// token tells the flow's datagrams from those of any other run.
func (f *Flow) token(plan *Plan) uint64 {
	return udp.Token(plan.RunID + "/" + plan.Phase + "/" + f.Name)
}

// schedule is the flow's rate over time, which its plan may change after the start.
func (f *Flow) schedule() udp.Schedule {
	return udp.Schedule{
		Steps:    append([]udp.Step{{RateBps: *f.RateBps}}, f.RateSteps...),
		Duration: f.Duration,
		Size:     f.PayloadBytes,
	}
}

func newHTTPServer(plan *Plan, f *Flow) (*end, error) {
	e := newEnd(f, "http_fetch", "sender")
	server, err := http.NewServer(http.ServerConfig{
		Config: e.http(plan), Client: f.Dst,
		Report: func(s http.Served) { e.reports <- s },
	})
	if err != nil {
		return nil, err
	}
	e.close = server.Close
	e.ends = f.Start + f.Duration + httpDrain
	e.execute = func(ctx context.Context, _ time.Time) (any, error) { return server.Run(ctx) }
	return e, nil
}

func newHTTPClient(plan *Plan, f *Flow) (*end, error) {
	e := newEnd(f, "http_fetch", "receiver")
	client, err := http.NewClient(http.ClientConfig{
		Config: e.http(plan), From: f.Dst, Count: f.Fetches, Think: f.Think, Persistent: f.Persistent,
		Report:  func(f http.Fetched) { e.reports <- f },
		Started: func(t time.Time) { e.started <- t },
	})
	if err != nil {
		return nil, err
	}
	e.close = client.Close
	e.ends = f.Start + f.Duration
	e.execute = func(ctx context.Context, t0 time.Time) (any, error) { return client.Run(ctx, t0.Add(f.Start)) }
	return e, nil
}

// http is what both ends of the flow know. The path tells its requests from
// those of any other run.
func (e *end) http(plan *Plan) http.Config {
	f := e.flow
	if slices.Contains(plan.Own().Sample.TCP, f.Name) {
		e.sockets = tcpinfo.NewOwnSockets(plan.Tags().With("flow", f.Name, "side", e.side))
	}
	return http.Config{
		Server: netip.AddrPortFrom(f.Src, f.ServerPort), Path: "/" + url.PathEscape(plan.RunID) + "/" + url.PathEscape(plan.Phase) + "/" + f.Name + "/",
		Bytes: f.FetchBytes, CongestionControl: *f.CongestionControl, Sockets: e.sockets,
	}
}

// runEnd runs one end of a flow and leaves its result in the run directory.
func (r *run) runEnd(ctx context.Context, a Action, e *end, rows *spool.Writer) error {
	const ahead = 100 * time.Millisecond // it sleeps to its first data on its own, more exactly
	if sleepUntil(ctx, r.t0.Add(a.At-ahead)) != nil {
		return nil
	}
	r.journal.Event("flow_launched", a.Flow, Attributes{"action": a.Kind})
	written := make(chan error)
	go func() { written <- r.writeReports(e, rows) }()
	if e.ends > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, r.t0.Add(e.ends))
		defer cancel()
	}
	result, err := e.execute(ctx, r.t0)
	close(e.reports)
	close(e.started)
	err = errors.Join(err, <-written)
	b, encodeErr := json.Marshal(result)
	if encodeErr == nil {
		path := filepath.Join(r.dir, e.flow.program()+"-"+a.Flow+"-"+e.side+".json")
		encodeErr = os.WriteFile(path, append(b, '\n'), 0o644)
	}
	err = errors.Join(err, encodeErr)
	if err != nil {
		return fmt.Errorf("%s: %w", a, err)
	}
	return nil
}

// writeReports writes the reports of one end of a flow to the spool, and when
// its first data did, until both channels are closed. It has a goroutine of its
// own, so that a slow disk delays no data.
func (r *run) writeReports(e *end, rows *spool.Writer) (failure error) {
	series := sample.NewSeries(e.measurement, r.plan.Tags().With("flow", e.flow.Name, "side", e.side))
	started := e.started
	for reports := e.reports; reports != nil || started != nil; {
		select {
		case first, ok := <-started:
			if ok {
				planned := r.t0.Add(e.begins)
				r.journal.EventAt(first, "flow_first_data", e.flow.Name, Attributes{
					"planned_unix_ns": planned.UnixNano(), "error_ns": first.Sub(planned).Nanoseconds()})
			}
			started = nil
		case report, ok := <-reports:
			if !ok {
				reports = nil
				continue
			}
			err := rows.Add(func(rows *sample.Rows) error {
				rows.Begin(series)
				report.AddFields(rows)
				rows.End(report.Time())
				return nil
			})
			err = errors.Join(err, rows.FlushDue(r.plan.SamplingInterval))
			if failure == nil {
				failure = err
			}
		}
	}
	return failure
}
