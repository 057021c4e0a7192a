// Package trace follows connections by the kernel's tracepoints: what TCP knew
// at every segment that arrived, its changes of state, its retransmissions, and
// packets dropped, by reason. It has a tracefs instance of its own and reads
// its pages as the kernel writes them, which costs a tenth of reading text.
package trace

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"dumbbell/collectors/clock"
	"dumbbell/collectors/row"
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

	// settle is how long after its time a record can be read for sure: those of
	// all CPUs are put in order up to then.
	settle = time.Millisecond
)

// events are those that are followed. Kernels lack some of them.
var events = []string{
	"tcp/tcp_probe",
	"tcp/tcp_retransmit_skb",
	"tcp/tcp_cong_state_set",
	"sock/inet_sock_set_state",
	"skb/kfree_skb",
}

// moduleEvents are those of modules. They are followed where their module is
// loaded, and missed nowhere else.
var moduleEvents = []string{
	"recovery/ack",  // modules/tcp_recovery
	"rapid/pstream", // modules/tcp_rapid
}

// An Event tells whether one of the events that are followed can be.
type Event struct {
	Name        string
	Unavailable error // nil if it is followed
}

// A Source writes rows of what has happened since the sample before, in order of time.
type Source struct {
	// Observe, if set, gets each record of a flow, by the flow's number.
	Observe func(flow int, r *Record)

	tracing  *tracing
	clock    clock.Clock
	tags     row.Tags
	flows    map[tcpinfo.Tuple]*flow
	handlers map[uint16]func(at time.Duration, data []byte)
	events   []Event
	page     []byte
	buffer   []byte // records that are not handled yet
	pending  []span // theirs
	rows     *row.Rows
	wall     time.Time     // the wall clock
	mono     time.Duration // and CLOCK_MONOTONIC at the same time
	drops    map[int64]*drop
	sampled  time.Time

	status   row.Series
	reported time.Time
	seen     int64
	lost     int64
}

// A span of the buffer is a record.
type span struct {
	at         time.Duration
	start, end int
}

// A flow has a series for each kind of event.
type flow struct {
	number int
	series map[string]row.Series // by the kernel's name of the event
	last   time.Duration         // time of its last row
}

type drop struct {
	series       row.Series
	total, delta int64
}

// NewSource begins to trace the connections of flows known in advance, by a
// helper that listens at a socket, or by itself if that is empty. The error is
// ErrUnavailable where tracing is not allowed, or where the kernel has none of
// the events.
func NewSource(flows []tcpinfo.Flow, tags row.Tags, clock clock.Clock, helper string) (*Source, error) {
	s := &Source{
		clock: clock, tags: tags, flows: make(map[tcpinfo.Tuple]*flow),
		handlers: make(map[uint16]func(time.Duration, []byte)), drops: make(map[int64]*drop),
		page: make([]byte, 64<<10), status: row.NewSeries("trace", tags),
	}
	var ports []uint16
	for i, f := range flows {
		series := make(map[string]row.Series)
		for name, kind := range connectionEvents {
			series[name] = row.NewSeries(kind.measurement, f.Tags.With("event", kind.event))
		}
		s.flows[f.Tuple] = &flow{number: i, series: series}
		ports = append(ports, f.Tuple.Local.Port(), f.Tuple.Remote.Port())
	}
	slices.Sort(ports)
	ports = slices.Compact(ports)
	var err error
	if helper == "" {
		s.tracing, err = begin(ports)
	} else {
		s.tracing, err = ask(helper, ports)
	}
	if err != nil {
		return nil, err
	}
	for _, d := range s.tracing.events {
		e := Event{Name: d.Name}
		if d.Unavailable != "" {
			e.Unavailable = errors.New(d.Unavailable)
		} else if format, err := parseFormat([]byte(d.Format)); err != nil {
			e.Unavailable = err
		} else {
			s.handlers[format.id] = s.handler(e.Name, format)
		}
		s.events = append(s.events, e)
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

// Seen is how many records were read, of the flows and of others with their ports.
func (s *Source) Seen() int64 { return s.seen }

// Lost is how many records the kernel had to drop, at least: its buffer holds
// those of one interval.
func (s *Source) Lost() int64 { return s.lost }

// Close ends the trace.
func (s *Source) Close() error { return s.tracing.end() }

// Sample writes a row for each event of a flow, stamped when it happened, and
// one for each reason for which packets were dropped.
func (s *Source) Sample(rows *row.Rows) error { return s.sample(rows, settle) }

// Finish is the last sample: it leaves nothing for a next one.
func (s *Source) Finish(rows *row.Rows) error { return s.sample(rows, 0) }

func (s *Source) sample(rows *row.Rows, settle time.Duration) error {
	now := clock.Now()
	s.rows, s.wall, s.mono = rows, now, s.clock.Mono(now)
	failure := s.read()
	slices.SortStableFunc(s.pending, func(a, b span) int { return cmp.Compare(a.at, b.at) })
	due := len(s.pending)
	if settle > 0 {
		due, _ = slices.BinarySearchFunc(s.pending, s.mono-settle, func(r span, at time.Duration) int { return cmp.Compare(r.at, at) })
	}
	for _, r := range s.pending[:due] {
		s.handle(r.at, s.buffer[r.start:r.end])
	}
	s.forget(due)
	interval := now.Sub(s.sampled)
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
	if settle == 0 || now.Sub(s.reported) >= statusInterval {
		s.reported = now
		rows.Begin(s.status)
		rows.Int("records", s.seen)
		rows.Int("lost", s.lost)
		rows.End(now)
	}
	return failure
}

// read adds what there is on the pages to the records.
func (s *Source) read() error {
	var failures []error
	for _, fd := range s.tracing.pages {
		for {
			n, err := unix.Read(fd, s.page)
			if err == unix.EAGAIN || err == nil && n == 0 {
				break
			}
			if err == nil {
				var lost int64
				lost, err = readPage(s.page[:n], s.keep)
				s.lost += lost
			}
			if err != nil {
				failures = append(failures, fmt.Errorf("reading a trace: %w", err))
				break
			}
		}
	}
	return errors.Join(failures...)
}

// keep copies a record: its page is about to be used again.
func (s *Source) keep(at time.Duration, data []byte) {
	s.seen++
	start := len(s.buffer)
	s.buffer = append(s.buffer, data...)
	s.pending = append(s.pending, span{at, start, len(s.buffer)})
}

// forget drops the records that were handled. Those that are left are few.
func (s *Source) forget(handled int) {
	var left []byte
	for i, r := range s.pending[handled:] {
		start := len(left)
		left = append(left, s.buffer[r.start:r.end]...)
		s.pending[i] = span{r.at, start, len(left)}
	}
	s.pending = s.pending[:len(s.pending)-handled]
	s.buffer = append(s.buffer[:0], left...)
}

func (s *Source) handle(at time.Duration, data []byte) {
	if len(data) < 2 {
		return
	}
	if handle, ok := s.handlers[uint16(data[0])|uint16(data[1])<<8]; ok {
		handle(at, data)
	}
}

// Events of a connection, as rows of tcp_event name them; of tcp_probe there is
// but one.
const (
	Probe      = ""
	Retransmit = "retransmit"
	CAState    = "ca_state"
	State      = "state"
	Ack        = "ack"
	PStream    = "pstream"
)

// connectionEvents are the events of a connection: their rows, and what is
// taken of a record, as "name" or "name:name in the row".
var connectionEvents = map[string]struct {
	measurement, event string
	fields             []string
}{
	"tcp/tcp_probe": {"tcp_probe", Probe,
		[]string{"data_len:data_bytes", "snd_nxt", "snd_una", "snd_cwnd", "ssthresh:snd_ssthresh", "snd_wnd", "srtt:srtt_us", "rcv_wnd"}},
	"tcp/tcp_retransmit_skb":   {"tcp_event", Retransmit, []string{"state", "err"}},
	"tcp/tcp_cong_state_set":   {"tcp_event", CAState, []string{"cong_state:ca_state"}},
	"sock/inet_sock_set_state": {"tcp_event", State, []string{"oldstate:old_state", "newstate:state"}},
	"recovery/ack": {"recovery", Ack,
		[]string{"ca_state", "snd_una", "snd_nxt", "snd_cwnd", "snd_ssthresh", "pipe", "prior_cwnd",
			"prr_delivered", "prr_out", "delivered", "lost", "srtt:srtt_us"}},
	"rapid/pstream": {"rapid", PStream,
		[]string{"id", "packets", "samples", "verdict", "slow_start", "ca_state", "excursion", "lowest:lowest_bps",
			"highest:highest_bps", "available:available_bps", "rate:rate_bps", "duration_ns"}},
}

// A Record is what was traced of a connection at one moment.
type Record struct {
	Event  string
	data   []byte
	fields []named
}

// Value is a field of the record by its name in rows, and false where this kernel has none.
func (r *Record) Value(name string) (int64, bool) {
	for _, f := range r.fields {
		if f.name == name {
			return f.integer(r.data)
		}
	}
	return 0, false
}

// handler returns what is done with records of an event.
func (s *Source) handler(event string, f *format) func(time.Duration, []byte) {
	kind, ok := connectionEvents[event]
	if !ok {
		return func(_ time.Duration, data []byte) { s.drop(f, data) } // skb/kfree_skb
	}
	record := Record{Event: kind.event, fields: f.pick(kind.fields...)}
	return func(at time.Duration, data []byte) {
		flow, ok := s.flows[tcpinfo.Tuple{Local: f.address(data, "s"), Remote: f.address(data, "d")}]
		if !ok {
			return
		}
		flow.last = max(at, flow.last+1) // a row is known by its series and its time
		s.rows.Begin(flow.series[event])
		for _, n := range record.fields {
			if v, ok := n.integer(data); ok {
				s.rows.Int(n.name, v)
			}
		}
		s.rows.End(s.wall.Add(flow.last - s.mono)) // one relation of the clocks for all keeps the order
		if s.Observe != nil {
			record.data = data
			s.Observe(flow.number, &record)
		}
	}
}

// drop counts a dropped packet by the kernel's name of the reason.
func (s *Source) drop(f *format, data []byte) {
	reason, ok := f.integer(data, "reason")
	if !ok {
		return
	}
	d := s.drops[reason]
	if d == nil {
		name, known := f.reasons[reason]
		if !known {
			name = fmt.Sprint("reason_", reason)
		}
		d = &drop{series: row.NewSeries("drops", s.tags.With("reason", name))}
		s.drops[reason] = d
	}
	d.total++
	d.delta++
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
