package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"dumbbell/collectors/qdisc"
	"dumbbell/collectors/spool"
	"dumbbell/collectors/tcpinfo"

	"github.com/influxdata/line-protocol/v2/lineprotocol"
)

// A sampler writes one row for each socket and qdisc of the plan at each tick:
// the multiples of the sampling interval from t0 to the end of the phase.
type sampler struct {
	plan    *Plan
	clock   Clock
	journal *Journal
	spool   *spool.Writer
	diag    *tcpinfo.Conn // nil if no flow is sampled
	qdisc   *qdisc.Conn   // nil if no qdisc is sampled
	sockets []*socket
}

// A socket is one end of one stream of a flow.
type socket struct {
	flow, side, stream string
	tuple              tcpinfo.Tuple
	sample             tcpinfo.Sample
	seen, gone         bool
}

func newSampler(plan *Plan, clock Clock, journal *Journal, spool *spool.Writer) (*sampler, error) {
	s := &sampler{plan: plan, clock: clock, journal: journal, spool: spool}
	for _, name := range plan.Own().Sample.TCP {
		f := plan.Flow(name)
		for stream := range f.Streams {
			if f.SrcHost == plan.Host {
				s.sockets = append(s.sockets, &socket{flow: name, side: "sender", stream: strconv.Itoa(stream), tuple: f.Tuple(stream)})
			}
			if f.DstHost == plan.Host {
				s.sockets = append(s.sockets, &socket{flow: name, side: "receiver", stream: strconv.Itoa(stream), tuple: f.Tuple(stream).Mirror()})
			}
		}
	}
	var err error
	if len(s.sockets) > 0 {
		if s.diag, err = tcpinfo.Dial(); err != nil {
			return nil, err
		}
	}
	if plan.Own().Sample.Qdisc {
		if s.qdisc, err = qdisc.Dial(); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	return s, nil
}

func (s *sampler) close() error {
	var err error
	if s.diag != nil {
		err = s.diag.Close()
	}
	if s.qdisc != nil {
		err = errors.Join(err, s.qdisc.Close())
	}
	return err
}

// run samples from t0 to the end of the phase and records how well it kept
// time. What goes wrong with one socket or qdisc is returned at the end and
// stops nothing; only a spool that cannot be written does.
func (s *sampler) run(ctx context.Context, t0 time.Time) error {
	var (
		interval  = s.plan.SamplingInterval
		ticks     = int64((s.plan.Duration + interval - 1) / interval) // the end itself is no tick
		intervals = newHistogram(interval)
		sampled   int64
		lateMax   time.Duration
		previous  time.Time
		failure   error // the first; one that lasts would repeat at every tick
		spoolErr  error
	)
	for tick := int64(0); tick < ticks; {
		due := t0.Add(time.Duration(tick) * interval)
		if sleepUntil(ctx, due) != nil {
			break
		}
		now := time.Now()
		lateMax = max(lateMax, now.Sub(due))
		if sampled > 0 {
			intervals.add(now.Sub(previous))
		}
		previous = now
		if err := s.sampleAll(); err != nil && failure == nil {
			failure = err
		}
		sampled++
		if spoolErr = s.spool.FlushDue(interval); spoolErr != nil {
			break
		}
		tick = max(tick+1, int64(time.Since(t0)/interval)) // late is not missed until the next tick is due
	}
	elapsed := min(ticks, max(0, int64(time.Since(t0)/interval)+1)) // all of them, unless aborted
	s.journal.Event("sampler", "", Attributes{
		"sampled": sampled, "ticks": elapsed, "missed": elapsed - sampled,
		"achieved_interval_ns": intervals.median().Nanoseconds(), "late_max_ns": lateMax.Nanoseconds(),
	})
	return errors.Join(failure, spoolErr)
}

func (s *sampler) sampleAll() error {
	var failure error
	for _, k := range s.sockets {
		if k.gone {
			continue
		}
		if err := s.sampleSocket(k); err != nil && failure == nil {
			failure = fmt.Errorf("sampling %s: %w", k.flow, err)
		}
	}
	if s.qdisc != nil {
		if err := s.sampleQdiscs(); err != nil && failure == nil {
			failure = fmt.Errorf("sampling qdiscs: %w", err)
		}
	}
	return failure
}

func (s *sampler) sampleSocket(k *socket) error {
	err := s.diag.Get(tcpinfo.TCP, k.tuple, &k.sample)
	now := time.Now()
	if errors.Is(err, tcpinfo.ErrNotFound) {
		k.gone = k.seen
		return nil
	}
	if err != nil {
		return err
	}
	k.seen = true
	row := s.spool.Row("tcp_info")
	row.AddTag("flow", k.flow)
	row.AddTag("host", s.plan.Host)
	row.AddTag("phase", s.plan.Phase)
	row.AddTag("point", s.plan.Point)
	row.AddTag("run", s.plan.RunID)
	row.AddTag("side", k.side)
	row.AddTag("stream", k.stream)
	k.sample.AddFields(row)
	row.AddField("mono_ns", lineprotocol.IntValue(s.clock.Mono(now).Nanoseconds()))
	return s.spool.End(now)
}

func (s *sampler) sampleQdiscs() error {
	list, err := s.qdisc.List()
	now := time.Now()
	if err != nil {
		return err
	}
	for i := range list {
		q := &list[i]
		row := s.spool.Row("qdisc")
		row.AddTag("dev", q.Device)
		row.AddTag("handle", q.Handle)
		row.AddTag("host", s.plan.Host)
		row.AddTag("kind", q.Kind)
		row.AddTag("parent", q.Parent)
		row.AddTag("phase", s.plan.Phase)
		row.AddTag("point", s.plan.Point)
		row.AddTag("run", s.plan.RunID)
		q.AddFields(row)
		row.AddField("mono_ns", lineprotocol.IntValue(s.clock.Mono(now).Nanoseconds()))
		if err := s.spool.End(now); err != nil {
			return err
		}
	}
	return nil
}

// A histogram finds the median of intervals near an expected one to 0.1 % of
// it, in constant memory however long a run is.
type histogram struct {
	width  time.Duration
	counts [4096]uint32 // the last one also counts what is longer
	total  uint32
}

func newHistogram(expected time.Duration) *histogram {
	return &histogram{width: max(expected/1000, 1)}
}

func (h *histogram) add(d time.Duration) {
	h.counts[min(int(d/h.width), len(h.counts)-1)]++
	h.total++
}

// median is 0 for an empty histogram.
func (h *histogram) median() time.Duration {
	var below uint32
	for i, n := range h.counts {
		below += n
		if n > 0 && below >= (h.total+1)/2 {
			return time.Duration(i)*h.width + h.width/2
		}
	}
	return 0
}
