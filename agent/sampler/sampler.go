// Package sampler writes rows of all that a plan wants sampled on its host.
package sampler

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"dumbbell/agent/journal"
	"dumbbell/agent/kind"
	"dumbbell/agent/plan"
	"dumbbell/collectors/clock"
	"dumbbell/collectors/cpu"
	"dumbbell/collectors/ebpf"
	"dumbbell/collectors/link"
	"dumbbell/collectors/ntp"
	"dumbbell/collectors/pace"
	"dumbbell/collectors/qdisc"
	"dumbbell/collectors/row"
	"dumbbell/collectors/sampling"
	"dumbbell/collectors/snmp"
	"dumbbell/collectors/spool"
	"dumbbell/collectors/tcpinfo"
	"dumbbell/collectors/trace"
	"dumbbell/collectors/web100"
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

	// calibrationLead is the same for a calibration, whose rows nobody awaits.
	calibrationLead = 500 * time.Millisecond

	// traceHelper is the socket of the host's helper that may trace. Without one
	// the agent has to be root.
	traceHelper = "/run/dumbbell-trace.sock"
)

// A Sampler writes rows of all that the plan wants sampled at each tick, from
// Lead before t0 to the end of the phase. Ticks are in the middle of the
// multiples of the sampling interval from t0: at those themselves flows start,
// which a tick of a slow host would keep waiting.
type Sampler struct {
	plan    *plan.Plan
	journal *journal.Journal
	spool   *spool.Writer
	sources sampling.Sources
	flows   *tcpinfo.Flows // one of the sources; nil if no flow is sampled
	ending  []ending       // those of the sources that follow sockets to their end
	trace   *trace.Source  // one of the sources; nil if nothing is traced

	counters    *ebpf.Counters // of the flows; nil if there are none
	connections []connection   // of the flows
}

// An ending source has a last row of each socket, once the kernel has told its end.
type ending interface {
	sampling.Finisher
	Open() int // sockets that were sampled and have not ended
	FinalsLost() int64
}

// A connection is followed for its variables by the names of RFC 4898.
type connection struct {
	web100.Connection
	series web100.Series
	start  time.Duration // of its flow, from t0
	cookie uint64        // 0: it was not seen, or has ended
	ended  bool          // its end was seen
}

// New opens all sources. It samples sockets of the agent's own, too.
func New(plan *plan.Plan, clk clock.Clock, journal *journal.Journal, spool *spool.Writer, sockets []*tcpinfo.OwnSockets) (*Sampler, error) {
	tags := plan.Tags()
	s := &Sampler{plan: plan, journal: journal, spool: spool}
	var flows []tcpinfo.Flow
	for _, name := range plan.Own().Sample.TCP {
		f := plan.Flow(name)
		switch kind.Of(f).Sampling {
		case kind.ByPort:
			sockets, err := newPortSockets(plan, f)
			if err != nil {
				return nil, errors.Join(fmt.Errorf("sampling %s: %w", name, err), s.Close())
			}
			s.sources = append(s.sources, sockets)
			s.ending = append(s.ending, sockets)
			continue
		case kind.ByEnds, kind.BySender:
			continue
		}
		follow := func(tags row.Tags, tuple tcpinfo.Tuple) {
			flows = append(flows, tcpinfo.Flow{Tags: tags, Tuple: tuple})
			s.connections = append(s.connections, connection{series: web100.NewSeries(tags), start: f.Start})
		}
		for stream := range f.Streams {
			tags := tags.With("flow", name, "stream", strconv.Itoa(stream))
			if f.SrcHost == plan.Host {
				follow(tags.With("side", "sender"), f.Tuple(stream))
			}
			if f.DstHost == plan.Host {
				follow(tags.With("side", "receiver"), f.Tuple(stream).Mirror())
			}
		}
	}
	if len(flows) > 0 {
		var err error
		if s.flows, err = tcpinfo.NewFlows(flows); err != nil {
			return nil, err
		}
		if err := s.flows.IgnorePresent(); err != nil {
			return nil, errors.Join(fmt.Errorf("looking for sockets that are left of earlier runs: %w", err), s.flows.Close())
		}
		s.flows.Observe = s.observe
		s.ending = append(s.ending, s.flows)
		s.sources = append(s.sources, s.flows)
	}
	for _, own := range sockets {
		s.sources = append(s.sources, own)
	}
	asked := plan.Own().Sample
	if asked.EBPF && s.flows != nil {
		if err := s.openEBPF(flows); err != nil {
			return nil, errors.Join(fmt.Errorf("sampling ebpf: %w", err), s.Close())
		}
	}
	for _, c := range []struct {
		name  string
		asked bool
		open  func() (sampling.Source, error)
	}{
		{"qdisc", asked.Qdisc, func() (sampling.Source, error) { return qdisc.NewSource(tags) }},
		{"queues", asked.Queues && !asked.Qdisc, func() (sampling.Source, error) { return slow(qdisc.NewSource(tags)) }},
		{"link", asked.Link, func() (sampling.Source, error) { return slow(link.NewSource(tags)) }},
		{"snmp", asked.SNMP, func() (sampling.Source, error) { return slow(snmp.NewSource(tags)) }},
		{"cpu", asked.CPU, func() (sampling.Source, error) { return slow(cpu.NewSource(tags)) }},
		{"clock", asked.Clock, func() (sampling.Source, error) { return ntp.NewSource(tags, ntp.Chrony), nil }},
		{"trace", asked.Trace, func() (sampling.Source, error) { return s.openTrace(flows, clk) }},
	} {
		if !c.asked {
			continue
		}
		source, err := c.open()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("sampling %s: %w", c.name, err), s.Close())
		}
		s.sources = append(s.sources, source)
	}
	return s, nil
}

// newPortSockets samples the connections of a flow by its server's port, which no other flow has.
func newPortSockets(plan *plan.Plan, f *plan.Flow) (*tcpinfo.Sockets, error) {
	side := "receiver"
	if f.SrcHost == plan.Host {
		side = "sender"
	}
	tags := plan.Tags().With("flow", f.Name, "side", side)
	return tcpinfo.NewSockets(tags, "stream", tcpinfo.Filter{Ports: []uint16{f.ServerPort}})
}

// slow samples a source of the whole host once a second.
func slow[S sampling.Source](s S, err error) (sampling.Source, error) {
	return sampling.Every(hostInterval, s), err
}

// observe follows a flow's connection. What eBPF has counted of it is read once,
// before it is forgotten.
func (s *Sampler) observe(flow int, socket *tcpinfo.Sample, ended bool) {
	c := &s.connections[flow]
	c.Observe(socket)
	c.cookie = socket.Cookie
	if ended {
		c.ended = true
		s.count(c)
	}
}

func (s *Sampler) count(c *connection) {
	if s.counters != nil && c.cookie != 0 {
		values, err := s.counters.Read(c.cookie)
		if err == nil { // else its rows say so
			c.Count(values, s.counters.Inexact() == nil)
		}
	}
	c.cookie = 0
}

// openTrace traces flows, and says which events this kernel does not have.
func (s *Sampler) openTrace(flows []tcpinfo.Flow, clk clock.Clock) (sampling.Source, error) {
	t, err := newTrace(flows, s.plan.Tags(), clk)
	if err != nil {
		return nil, err
	}
	whole := true
	for _, e := range t.Events() {
		if e.Unavailable != nil {
			whole = false
			s.unavailable("trace", e.Name, e.Unavailable)
		}
	}
	if whole { // else what it lacks would count as 0
		t.Observe = func(flow int, r *trace.Record) { s.connections[flow].Trace(r) }
	}
	s.trace = t
	return t, nil
}

// openEBPF adds to the rows of flows what eBPF counts of them, and says what this host does not have of it.
func (s *Sampler) openEBPF(flows []tcpinfo.Flow) error {
	counters, err := ebpf.OpenFlows(flows)
	if errors.Is(err, ebpf.ErrUnavailable) {
		s.unavailable("ebpf", "ebpf", err)
		return nil
	}
	if err != nil {
		return err
	}
	if err := counters.Inexact(); err != nil {
		s.journal.Event("collector_inexact", "", journal.Attributes{"source": "ebpf", "name": "send_stalls", "reason": err.Error()})
	}
	s.flows.Extend(counters)
	s.counters = counters
	return nil
}

func (s *Sampler) unavailable(source, name string, reason error) {
	s.journal.Event("collector_unavailable", "", journal.Attributes{"source": source, "name": name, "reason": reason.Error()})
}

// newTrace traces flows by the host's helper, if there is one.
func newTrace(flows []tcpinfo.Flow, tags row.Tags, clk clock.Clock) (*trace.Source, error) {
	helper := traceHelper
	if _, err := os.Stat(helper); errors.Is(err, fs.ErrNotExist) {
		helper = ""
	}
	return trace.NewSource(flows, tags, clk, helper)
}

// Close closes all sources.
func (s *Sampler) Close() error { return s.sources.Close() }

// Lead is how long before t0 the first tick is. Where nothing is
// sampled, as in a calibration, nothing needs to be known before t0.
func Lead(p *plan.Plan) time.Duration {
	lead := p.SamplingInterval / 2
	switch {
	case !p.Own().Sample.Anything():
	case p.Phase == "calibration":
		lead += calibrationLead.Truncate(p.SamplingInterval)
	default:
		lead += sampleLead.Truncate(p.SamplingInterval)
	}
	return lead
}

// Run samples to the end of the phase and records how well it kept
// time. What goes wrong with one source is returned at the end and stops
// nothing; only a spool that cannot be written does.
func (s *Sampler) Run(ctx context.Context, t0 time.Time) error {
	for i := range s.connections {
		c := &s.connections[i]
		c.StartAt(t0.Add(c.start)) // it waits from when it is up
	}
	lead := Lead(s.plan)
	var failure error
	loop := sampling.Loop{
		Sources: s.sources, Output: s.spool, Interval: s.plan.SamplingInterval, Self: row.NewSeries("sampler", s.plan.Tags()),
		Failed: func(err error) { failure = fmt.Errorf("sampling: %w", err) },
	}
	spoolErr := loop.Run(ctx, t0.Add(-lead), lead+s.plan.Duration)
	report := loop.Report()
	s.journal.Event("sampler", "", journal.Attributes{
		"sampled": report.Sampled, "ticks": report.Ticks, "missed": report.Missed(),
		"achieved_interval_ns": report.AchievedInterval.Nanoseconds(), "late_max_ns": report.LateMax.Nanoseconds(),
	})
	return errors.Join(failure, spoolErr)
}

// finals gathers the final totals of sockets that end with their processes.
func (s *Sampler) finals(ctx context.Context) error {
	if len(s.ending) == 0 {
		return nil
	}
	var open int
	var lost int64
	for giveUp := time.Now().Add(endWait); ; {
		open, lost = 0, 0
		for _, e := range s.ending {
			if err := s.spool.Add(e.Finish); err != nil {
				return err
			}
			open, lost = open+e.Open(), lost+e.FinalsLost()
		}
		if open == 0 || time.Now().After(giveUp) || pace.SleepUntil(ctx, time.Now().Add(endPoll)) != nil {
			break
		}
	}
	s.journal.Event("finals", "", journal.Attributes{"open": open, "lost": lost})
	return nil
}

// Finish gathers the final totals of sockets, and what came of each connection.
func (s *Sampler) Finish(ctx context.Context) error {
	if err := s.finals(ctx); err != nil {
		return fmt.Errorf("sampling: %w", err)
	}
	if s.trace != nil {
		if err := s.spool.Add(s.trace.Finish); err != nil {
			return fmt.Errorf("sampling: %w", err)
		}
		s.journal.Event("trace", "", journal.Attributes{"records": s.trace.Seen(), "lost": s.trace.Lost()})
	}
	s.spool.Add(func(rows *row.Rows) error {
		for i := range s.connections {
			c := &s.connections[i]
			s.count(c)
			if s.trace != nil && s.trace.Lost() > 0 {
				c.TraceLost()
			}
			if !c.ended {
				c.EndMissed()
			}
			c.Write(rows, &c.series)
		}
		return nil
	})
	return s.spool.Flush()
}
