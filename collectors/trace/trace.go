// Package trace follows connections by the kernel's tracepoints: what TCP knew
// at every segment that arrived, its changes of state, its retransmissions, and
// packets dropped, by reason. It has a tracefs instance of its own and reads
// its pages as the kernel writes them, which costs a tenth of reading text.
package trace

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"dumbbell/collectors/sample"
	"dumbbell/collectors/tcpinfo"

	"golang.org/x/sys/unix"
)

const (
	// bufferKB is the memory for a CPU's records, of some 150 bytes each,
	// between two samples: 50 000 ACKs.
	bufferKB = 8192

	// filterPorts is how many ports a filter names; for more it takes their range.
	filterPorts = 32

	statusInterval = time.Second
)

// events are those that are followed. Kernels lack some of them.
var events = []struct{ name, filter string }{
	{"tcp/tcp_probe", "ports"},
	{"tcp/tcp_retransmit_skb", "ports"},
	{"tcp/tcp_cong_state_set", "ports"},
	{"sock/inet_sock_set_state", "ports"},
	{"skb/kfree_skb", "reasons"},
}

// An Event tells whether one of the events that are followed can be.
type Event struct {
	Name        string
	Unavailable error // nil if it is followed
}

// A Source writes rows of what has happened since the sample before.
type Source struct {
	instance *instance
	clock    sample.Clock
	tags     sample.Tags
	flows    map[tcpinfo.Tuple]*flow
	handlers map[uint16]func(at time.Time, record []byte)
	events   []Event
	page     []byte
	rows     *sample.Rows
	drops    map[int64]*drop
	sampled  time.Time

	status   sample.Series
	reported time.Time
	seen     int64
	lost     int64
}

// A flow has a series for each kind of event.
type flow struct {
	probe, retransmit, control, state sample.Series
}

type drop struct {
	series       sample.Series
	total, delta int64
}

// NewSource begins to trace the connections of flows known in advance. The
// error is ErrUnavailable where this process may not trace, or where the kernel
// has none of the events.
func NewSource(flows []tcpinfo.Flow, tags sample.Tags, clock sample.Clock) (*Source, error) {
	instance, err := newInstance(bufferKB)
	if err != nil {
		return nil, err
	}
	s := &Source{
		instance: instance, clock: clock, tags: tags, flows: make(map[tcpinfo.Tuple]*flow),
		handlers: make(map[uint16]func(time.Time, []byte)), drops: make(map[int64]*drop),
		page: make([]byte, 64<<10), status: sample.NewSeries("trace", tags),
	}
	var ports []uint16
	for _, f := range flows {
		s.flows[f.Tuple] = &flow{
			probe:      sample.NewSeries("tcp_probe", f.Tags),
			retransmit: sample.NewSeries("tcp_event", f.Tags.With("event", "retransmit")),
			control:    sample.NewSeries("tcp_event", f.Tags.With("event", "ca_state")),
			state:      sample.NewSeries("tcp_event", f.Tags.With("event", "state")),
		}
		ports = append(ports, f.Tuple.Local.Port(), f.Tuple.Remote.Port())
	}
	slices.Sort(ports)
	filter := portFilter(slices.Compact(ports))
	for _, e := range events {
		if e.filter == "ports" {
			e.filter = filter
		}
		format, err := instance.enable(e.name, e.filter)
		if errors.Is(err, fs.ErrNotExist) {
			err = errors.New("this kernel does not have it")
		}
		s.events = append(s.events, Event{e.name, err})
		if err == nil {
			s.handlers[format.id] = s.handler(e.name, format)
		}
	}
	if len(s.handlers) == 0 {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrUnavailable, s.events[0].Unavailable), s.Close())
	}
	return s, nil
}

// portFilter is the condition, in the language of tracefs, that a socket has one of the ports.
func portFilter(ports []uint16) string {
	if len(ports) > filterPorts {
		first, last := ports[0], ports[len(ports)-1]
		return fmt.Sprintf("(sport >= %d && sport <= %d) || (dport >= %d && dport <= %d)", first, last, first, last)
	}
	var conditions []string
	for _, p := range ports {
		conditions = append(conditions, fmt.Sprintf("sport == %d || dport == %d", p, p))
	}
	return strings.Join(conditions, " || ")
}

// Events tells which events are followed.
func (s *Source) Events() []Event { return s.events }

// Lost is how many records the kernel had to drop, at least: its buffer holds
// those of one interval.
func (s *Source) Lost() int64 { return s.lost }

// Close ends the trace and removes the instance.
func (s *Source) Close() error { return s.instance.close() }

// Sample writes a row for each event of a flow, stamped when it happened, and
// one for each reason for which packets were dropped.
func (s *Source) Sample(rows *sample.Rows) error {
	s.rows = rows
	now := time.Now()
	interval := now.Sub(s.sampled)
	var failures []error
	for _, pages := range s.instance.pages {
		raw, err := pages.SyscallConn()
		if err != nil {
			return fmt.Errorf("reading a trace: %w", err)
		}
		err = raw.Control(func(fd uintptr) {
			for {
				n, err := unix.Read(int(fd), s.page)
				if err == unix.EAGAIN || err == nil && n == 0 {
					return
				}
				if err == nil {
					var lost int64
					lost, err = readPage(s.page[:n], s.record)
					s.lost += lost
				}
				if err != nil {
					failures = append(failures, fmt.Errorf("reading a trace: %w", err))
					return
				}
			}
		})
		failures = append(failures, err)
	}
	for _, d := range s.drops {
		if d.delta > 0 {
			rows.Begin(d.series)
			rows.Int("total", d.total)
			rows.Int("delta", d.delta)
			if !s.sampled.IsZero() {
				rows.Int("interval_ns", interval.Nanoseconds())
			}
			rows.End(now)
			d.delta = 0
		}
	}
	s.sampled = now
	if now.Sub(s.reported) >= statusInterval {
		s.reported = now
		rows.Begin(s.status)
		rows.Int("records", s.seen)
		rows.Int("lost", s.lost)
		rows.End(now)
	}
	return errors.Join(failures...)
}

// record handles one record. Its time is turned to that of the wall clock as
// it is now, like that of all other rows.
func (s *Source) record(at time.Duration, data []byte) {
	s.seen++
	if len(data) < 2 {
		return
	}
	if handle, ok := s.handlers[uint16(data[0])|uint16(data[1])<<8]; ok {
		handle(s.clock.Time(at), data)
	}
}

// connectionEvents are the events of a connection: the series of its rows, and
// what is taken of a record, as "name" or "name:name in the row".
var connectionEvents = map[string]struct {
	series func(*flow) sample.Series
	fields []string
}{
	"tcp/tcp_probe": {
		func(f *flow) sample.Series { return f.probe },
		[]string{"data_len:data_bytes", "snd_nxt", "snd_una", "snd_cwnd", "ssthresh:snd_ssthresh", "snd_wnd", "srtt:srtt_us", "rcv_wnd"},
	},
	"tcp/tcp_retransmit_skb":   {func(f *flow) sample.Series { return f.retransmit }, []string{"state", "err"}},
	"tcp/tcp_cong_state_set":   {func(f *flow) sample.Series { return f.control }, []string{"cong_state:ca_state"}},
	"sock/inet_sock_set_state": {func(f *flow) sample.Series { return f.state }, []string{"oldstate:old_state", "newstate:state"}},
}

// handler returns what is done with records of an event.
func (s *Source) handler(event string, f *format) func(time.Time, []byte) {
	tuple := func(record []byte) tcpinfo.Tuple {
		return tcpinfo.Tuple{Local: f.address(record, "s"), Remote: f.address(record, "d")}
	}
	if kind, ok := connectionEvents[event]; ok {
		fields := f.pick(kind.fields...)
		return func(at time.Time, record []byte) {
			flow, ok := s.flows[tuple(record)]
			if !ok {
				return
			}
			s.rows.Begin(kind.series(flow))
			for _, n := range fields {
				if v, ok := n.integer(record); ok {
					s.rows.Int(n.name, v)
				}
			}
			s.rows.End(at)
		}
	}
	return func(_ time.Time, record []byte) { // skb/kfree_skb
		reason, ok := f.integer(record, "reason")
		if !ok {
			return
		}
		d := s.drops[reason]
		if d == nil {
			name, known := f.reasons[reason]
			if !known {
				name = fmt.Sprint("reason_", reason)
			}
			d = &drop{series: sample.NewSeries("drops", s.tags.With("reason", name))}
			s.drops[reason] = d
		}
		d.total++
		d.delta++
	}
}

// named is a field of a record and the name that its value gets.
type named struct {
	name string
	field
}

// pick finds fields, given as "kernel's name:ours" or as the name of both.
// Those that this kernel lacks are left out.
func (f *format) pick(names ...string) (picked []named) {
	for _, n := range names {
		theirs, ours, ok := strings.Cut(n, ":")
		if !ok {
			ours = theirs
		}
		if at, ok := f.fields[theirs]; ok {
			picked = append(picked, named{ours, at})
		}
	}
	return picked
}
