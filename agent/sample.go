package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"dumbbell/collectors/clock"
	"dumbbell/collectors/cpu"
	"dumbbell/collectors/link"
	"dumbbell/collectors/qdisc"
	"dumbbell/collectors/sample"
	"dumbbell/collectors/snmp"
	"dumbbell/collectors/spool"
	"dumbbell/collectors/tcpinfo"
	"dumbbell/collectors/trace"
)

const (
	// endWait is how long sockets of flows may need to end once all processes
	// have: their last data and FIN are on the way. Their final totals are
	// waited for so long.
	endWait = 2 * time.Second

	endPoll = 10 * time.Millisecond

	// hostInterval is that of counters of the whole host, which cost more than
	// those of a flow.
	hostInterval = time.Second

	// sampleLead is how long before t0 sampling begins: counters are known from
	// before the first packet, and what starts to work with the first rows, such
	// as their delivery, does so before the flows.
	sampleLead = 2 * time.Second

	// reportInterval is that of rows about the sampler itself.
	reportInterval = time.Second
)

// A sampler writes rows of all that the plan wants sampled at each tick: the
// multiples of the sampling interval from t0, and from sampleLead before it to
// the end of the phase.
type sampler struct {
	plan    *Plan
	journal *Journal
	spool   *spool.Writer
	sources sample.Sources
	flows   *tcpinfo.Flows // one of the sources; nil if no flow is sampled
	trace   *trace.Source  // one of the sources; nil if nothing is traced
	self    sample.Series

	reported time.Time
}

func newSampler(plan *Plan, clk sample.Clock, journal *Journal, spool *spool.Writer) (*sampler, error) {
	tags := plan.Tags()
	s := &sampler{plan: plan, journal: journal, spool: spool, self: sample.NewSeries("sampler", tags)}
	var flows []tcpinfo.Flow
	for _, name := range plan.Own().Sample.TCP {
		f := plan.Flow(name)
		for stream := range f.Streams {
			tags := tags.With("flow", name, "stream", strconv.Itoa(stream))
			if f.SrcHost == plan.Host {
				flows = append(flows, tcpinfo.Flow{Tags: tags.With("side", "sender"), Tuple: f.Tuple(stream)})
			}
			if f.DstHost == plan.Host {
				flows = append(flows, tcpinfo.Flow{Tags: tags.With("side", "receiver"), Tuple: f.Tuple(stream).Mirror()})
			}
		}
	}
	if len(flows) > 0 {
		var err error
		if s.flows, err = tcpinfo.NewFlows(flows); err != nil {
			return nil, err
		}
		s.sources = append(s.sources, s.flows)
	}
	asked := plan.Own().Sample
	for _, c := range []struct {
		name  string
		asked bool
		open  func() (sample.Source, error)
	}{
		{"qdisc", asked.Qdisc, func() (sample.Source, error) { return qdisc.NewSource(tags) }},
		{"link", asked.Link, func() (sample.Source, error) { return slow(link.NewSource(tags)) }},
		{"snmp", asked.SNMP, func() (sample.Source, error) { return slow(snmp.NewSource(tags)) }},
		{"cpu", asked.CPU, func() (sample.Source, error) { return slow(cpu.NewSource(tags)) }},
		{"clock", asked.Clock, func() (sample.Source, error) { return clock.NewSource(tags, clock.Chrony), nil }},
		{"trace", asked.Trace, func() (sample.Source, error) { return s.openTrace(flows, clk) }},
	} {
		if !c.asked {
			continue
		}
		source, err := c.open()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("sampling %s: %w", c.name, err), s.close())
		}
		s.sources = append(s.sources, source)
	}
	return s, nil
}

// slow samples a source of the whole host once a second.
func slow[S sample.Source](s S, err error) (sample.Source, error) {
	return sample.Every(hostInterval, s), err
}

// openTrace traces flows, and says which events this kernel does not have.
func (s *sampler) openTrace(flows []tcpinfo.Flow, clk sample.Clock) (sample.Source, error) {
	t, err := trace.NewSource(flows, s.plan.Tags(), clk)
	if err != nil {
		return nil, err
	}
	for _, e := range t.Events() {
		if e.Unavailable != nil {
			s.journal.Event("collector_unavailable", "", Attributes{"name": e.Name, "reason": e.Unavailable.Error()})
		}
	}
	s.trace = t
	return t, nil
}

func (s *sampler) close() error { return s.sources.Close() }

// run samples to the end of the phase and records how well it kept
// time. What goes wrong with one source is returned at the end and stops
// nothing; only a spool that cannot be written does.
func (s *sampler) run(ctx context.Context, t0 time.Time) error {
	lead := sampleLead.Truncate(s.plan.SamplingInterval)
	var (
		pace     = sample.NewPace(t0.Add(-lead), s.plan.SamplingInterval, lead+s.plan.Duration)
		failure  error // the first; one that lasts would repeat at every tick
		spoolErr error
	)
	tick := func(rows *sample.Rows) error {
		err := s.sources.Sample(rows)
		if now := time.Now(); now.Sub(s.reported) >= reportInterval {
			s.reported = now
			rows.Begin(s.self)
			pace.Report().AddFields(rows)
			rows.End(now)
		}
		return err
	}
	for spoolErr == nil && pace.Next(ctx) {
		if err := s.spool.Add(tick); err != nil && failure == nil {
			failure = fmt.Errorf("sampling: %w", err)
		}
		spoolErr = s.spool.FlushDue(s.plan.SamplingInterval)
	}
	report := pace.Report()
	s.journal.Event("sampler", "", Attributes{
		"sampled": report.Sampled, "ticks": report.Ticks, "missed": report.Missed(),
		"achieved_interval_ns": report.AchievedInterval.Nanoseconds(), "late_max_ns": report.LateMax.Nanoseconds(),
	})
	return errors.Join(failure, spoolErr)
}

// finish gathers the final totals of sockets that end with their processes.
func (s *sampler) finish(ctx context.Context) error {
	if s.flows == nil {
		return nil
	}
	open := 1
	for giveUp := time.Now().Add(endWait); open > 0 && time.Now().Before(giveUp); {
		s.spool.Add(func(rows *sample.Rows) error { open = s.flows.Finish(rows); return nil })
		if open > 0 && sleepUntil(ctx, time.Now().Add(endPoll)) != nil {
			break
		}
	}
	if s.trace != nil {
		if err := s.spool.Add(s.trace.Sample); err != nil {
			return fmt.Errorf("sampling: %w", err)
		}
		s.journal.Event("trace", "", Attributes{"lost": s.trace.Lost()})
	}
	s.journal.Event("finals", "", Attributes{"open": open, "lost": s.flows.FinalsLost()})
	return s.spool.Flush()
}
