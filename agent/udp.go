package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"dumbbell/collectors/sample"
	"dumbbell/collectors/spool"
	"dumbbell/traffic/udp"
)

const (
	// udpDrain is how long after the end of its flow a receiver waits for the
	// sender's end markers.
	udpDrain = 5 * time.Second

	// udpReports is how many reports of one end wait while the disk is slow.
	udpReports = 1024
)

// A udpEnd is this host's sending or receiving end of a flow. Its socket
// exists before the host says that it is armed, so that a port that is taken
// or a missing route is found then.
type udpEnd struct {
	flow    *Flow
	side    string // sender or receiver
	execute func(ctx context.Context, t0 time.Time) (result any, err error)
	close   func() error
	reports chan udpReport
	started chan time.Time // at which the first datagram left
}

// A udpReport is the state of one end at a moment.
type udpReport interface {
	Time() time.Time
	AddFields(rows *sample.Rows)
}

// openUDP makes the sockets of this host's ends of UDP flows, by their actions.
func openUDP(plan *Plan) (ends map[string]*udpEnd, err error) {
	ends = make(map[string]*udpEnd)
	for _, a := range plan.Own().Actions {
		newEnd := newUDPSender
		switch a.Kind {
		default:
			continue
		case "udp_receive":
			newEnd = newUDPReceiver
		case "udp_send":
		}
		e, err := newEnd(plan, plan.Flow(a.Flow))
		if err != nil {
			closeUDP(ends)
			return nil, fmt.Errorf("%s: %w", a, err)
		}
		ends[a.String()] = e
	}
	return ends, nil
}

func closeUDP(ends map[string]*udpEnd) {
	for _, e := range ends {
		e.close()
	}
}

func newUDPEnd(f *Flow, side string) *udpEnd {
	return &udpEnd{flow: f, side: side, reports: make(chan udpReport, udpReports), started: make(chan time.Time, 1)}
}

func newUDPSender(plan *Plan, f *Flow) (*udpEnd, error) {
	e := newUDPEnd(f, "sender")
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

func newUDPReceiver(plan *Plan, f *Flow) (*udpEnd, error) {
	e := newUDPEnd(f, "receiver")
	receiver, err := udp.NewReceiver(udp.ReceiverConfig{
		Listen:   netip.AddrPortFrom(f.Dst, f.ServerPort),
		Token:    f.token(plan),
		Interval: plan.SamplingInterval,
		Report:   func(r udp.ReceivedReport) { e.reports <- r },
	})
	if err != nil {
		return nil, err
	}
	e.close = receiver.Close
	e.execute = func(ctx context.Context, t0 time.Time) (any, error) {
		ctx, cancel := context.WithDeadline(ctx, t0.Add(f.Start+f.Duration+udpDrain))
		defer cancel()
		return receiver.Run(ctx)
	}
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

// runUDP runs one end of a flow and leaves its result in the run directory.
func (r *run) runUDP(ctx context.Context, a Action, e *udpEnd, rows *spool.Writer) error {
	const ahead = 100 * time.Millisecond // a sender sleeps to its first datagram on its own, more exactly
	if sleepUntil(ctx, r.t0.Add(a.At-ahead)) != nil {
		return nil
	}
	r.journal.Event("flow_launched", a.Flow, Attributes{"action": a.Kind})
	written := make(chan error)
	go func() { written <- r.writeReports(e, rows) }()
	result, err := e.execute(ctx, r.t0)
	close(e.reports)
	close(e.started)
	err = errors.Join(err, <-written)
	if b, encodeErr := json.Marshal(result); encodeErr == nil {
		path := filepath.Join(r.dir, "udp-"+a.Flow+"-"+e.side+".json")
		err = errors.Join(err, os.WriteFile(path, append(b, '\n'), 0o644))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", a, err)
	}
	return nil
}

// writeReports writes the reports of one end of a flow to the spool, and when
// its first datagram left, until both channels are closed. It has a goroutine of
// its own, so that a slow disk delays no datagram.
func (r *run) writeReports(e *udpEnd, rows *spool.Writer) (failure error) {
	series := sample.NewSeries("udp", r.plan.Tags().With("flow", e.flow.Name, "side", e.side))
	started := e.started
	for reports := e.reports; reports != nil || started != nil; {
		select {
		case first, ok := <-started:
			if ok {
				planned := r.t0.Add(e.flow.Start + e.flow.schedule().First())
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
