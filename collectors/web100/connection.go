package web100

import (
	"errors"
	"fmt"
	"time"

	"dumbbell/collectors/ebpf"
	"dumbbell/collectors/row"
	"dumbbell/collectors/tcpinfo"
)

// Maxima that a connection remembers.
const (
	maxCwnd = iota
	maxRTT
	maxRTO
	maxima
)

var (
	cwndField     = tcpinfo.FieldByName("snd_cwnd")
	mssField      = tcpinfo.FieldByName("snd_mss")
	ssthreshField = tcpinfo.FieldByName("snd_ssthresh")
	srttField     = tcpinfo.FieldByName("srtt_us")
	rtoField      = tcpinfo.FieldByName("rto_us")
	optionsField  = tcpinfo.FieldByName("options")
	caStateField  = tcpinfo.FieldByName("ca_state")
	unackedField  = tcpinfo.FieldByName("unacked")
	sackedField   = tcpinfo.FieldByName("sacked")
	lostField     = tcpinfo.FieldByName("lost")
	retransField  = tcpinfo.FieldByName("retrans")
	busyField     = tcpinfo.FieldByName("busy_time_us")
	rwndField     = tcpinfo.FieldByName("rwnd_limited_us")
	sndbufField   = tcpinfo.FieldByName("sndbuf_limited_us")
)

// A Connection follows one connection from sample to sample.
type Connection struct {
	info         tcpinfo.Info
	counters     []int64 // of eBPF, as many as are known
	verdicts     bool    // of the own queue are among them
	samples      int
	receiveQueue int64
	maximum      [maxima]int64
	seen         [maxima]bool
	signals      int64
	reductions   int64
	caState      int64
	cwnd         int64
	start        time.Time // of its flow; zero: that of the connection
	first, last  time.Time // samples; the first is that of its flow's start
	busyBefore   int64
	endMissed    bool
	history      history
}

// StartAt says when the flow of the connection starts, which may be up long
// before. Until then its application waits for the plan, and is no limit.
func (c *Connection) StartAt(t time.Time) { c.start = t }

// EndMissed says that the end of the connection was not seen: what is known of
// it is from its last sample, and exact no longer.
func (c *Connection) EndMissed() { c.endMissed = true }

// Observe takes a sample in.
func (c *Connection) Observe(s *tcpinfo.Sample) {
	c.info = append(c.info[:0], s.Info...)
	c.receiveQueue = int64(s.ReceiveQueue)
	cwnd, _ := c.now(cwndField)
	mss, _ := c.now(mssField)
	state, _ := c.now(caStateField)
	c.raise(maxCwnd, cwnd*mss)
	if v, ok := c.now(srttField); ok && v > 0 {
		c.raise(maxRTT, v)
	}
	if v, ok := c.now(rtoField); ok {
		c.raise(maxRTO, v)
	}
	if c.samples == 0 || s.Time.Before(c.start) {
		c.first = s.Time
		if s.Time.Before(c.start) {
			c.first = c.start
		}
		c.busyBefore, _ = c.now(busyField)
	}
	if c.samples > 0 {
		if state >= cwr && state != c.caState {
			c.signals++
		}
		if state == open && c.caState == open && cwnd < c.cwnd {
			c.reductions++
		}
	}
	c.caState, c.cwnd, c.last = state, cwnd, s.Time
	c.samples++
}

// Count takes in what eBPF has counted, nil if it does not count this one, and
// whether stalls are the kernel's own verdicts.
func (c *Connection) Count(v *ebpf.Values, verdicts bool) {
	c.counters, c.verdicts = c.counters[:0], verdicts
	if v != nil {
		c.counters = append(c.counters, v.Known()...)
	}
}

func (c *Connection) raise(i int, v int64) {
	c.maximum[i], c.seen[i] = max(c.maximum[i], v), true
}

// counter is one of eBPF's.
func counter(name string) func(*Connection) (int64, bool) {
	i := ebpf.Field(name)
	return func(c *Connection) (int64, bool) {
		if i >= len(c.counters) {
			return 0, false
		}
		return c.counters[i], true
	}
}

// stallsCounted are eBPF's, by the kernel's verdicts or by dropped packets.
func stallsCounted(verdicts bool) func(*Connection) (int64, bool) {
	count := counter("send_stalls")
	return func(c *Connection) (int64, bool) {
		n, ok := count(c)
		return n, ok && c.verdicts == verdicts
	}
}

// now is a member of the last sample.
func (c *Connection) now(f tcpinfo.Field) (int64, bool) {
	v, ok := c.info.Value(f)
	return int64(v), ok
}

func (c *Connection) all(fields ...tcpinfo.Field) (values []int64, ok bool) {
	for _, f := range fields {
		v, known := c.now(f)
		if !known {
			return nil, false
		}
		values = append(values, v)
	}
	return values, true
}

func ssthresh(c *Connection) (int64, bool) {
	const infinite = 1<<31 - 1 // TCP_INFINITE_SSTHRESH
	v, ok := c.all(ssthreshField, mssField)
	if !ok || v[0] >= infinite {
		return 0, false
	}
	return v[0] * v[1], true
}

func pipe(c *Connection) (int64, bool) {
	v, ok := c.all(unackedField, sackedField, lostField, retransField, mssField)
	if !ok {
		return 0, false
	}
	return (v[0] - v[1] - v[2] + v[3]) * v[4], true
}

func cwndLimited(c *Connection) (int64, bool) {
	v, ok := c.all(busyField, rwndField, sndbufField)
	if !ok {
		return 0, false
	}
	return v[0] - v[1] - v[2], true
}

func senderLimited(c *Connection) (int64, bool) {
	v, ok := c.all(busyField, sndbufField)
	if !ok {
		return 0, false
	}
	idle := c.last.Sub(c.first).Microseconds() - (v[0] - c.busyBefore)
	return v[1] + max(idle, 0), true
}

func signals(c *Connection) (int64, bool) { return c.signals, c.samples > 1 }

func reductions(c *Connection) (int64, bool) { return c.reductions, c.samples > 1 }

// Series are the beginnings of a connection's rows, by grade.
type Series [Exact + 1]row.Series

// NewSeries makes the series of a connection: its tags and a grade.
func NewSeries(tags row.Tags) (s Series) {
	for g := Approximate; g <= Exact; g++ {
		s[g] = row.NewSeries("web100", tags.With("grade", g.String()))
	}
	return s
}

// Write writes the variables that are known of the connection, each by the best
// way: a row for each grade, stamped with the time of the last sample.
func (c *Connection) Write(rows *row.Rows, series *Series) {
	if c.samples == 0 {
		return
	}
	best := Exact
	if c.endMissed {
		best = Approximate
	}
	for g := Approximate; g <= best; g++ {
		rows.Begin(series[g])
		for i := range Variables {
			if value, grade := Variables[i].of(c); min(grade, best) == g {
				rows.Int(Variables[i].Name, value)
			}
		}
		rows.End(c.last)
	}
}

// A Source samples connections known in advance and writes their variables.
type Source struct {
	conn        *tcpinfo.Conn
	counters    *ebpf.Counters // nil: this host has none
	series      []Series
	tuples      []tcpinfo.Tuple
	connections []Connection
	socket      tcpinfo.Sample
}

// NewSource opens a connection to the kernel. It closes the counters in the
// end; without them they are nil.
func NewSource(flows []tcpinfo.Flow, counters *ebpf.Counters) (*Source, error) {
	conn, err := tcpinfo.Dial()
	if err != nil {
		return nil, err
	}
	s := &Source{conn: conn, counters: counters, connections: make([]Connection, len(flows))}
	for _, f := range flows {
		s.series = append(s.series, NewSeries(f.Tags))
		s.tuples = append(s.tuples, f.Tuple)
	}
	return s, nil
}

// Sample writes rows of each connection that exists.
func (s *Source) Sample(rows *row.Rows) error {
	var failure error
	err := s.conn.GetAll(tcpinfo.TCP, s.tuples, &s.socket, func(i int, err error) {
		if err != nil {
			if !errors.Is(err, tcpinfo.ErrNotFound) {
				failure = err
			}
			return
		}
		c := &s.connections[i]
		c.Observe(&s.socket)
		if s.counters != nil {
			values, err := s.counters.Read(s.socket.Cookie)
			if err != nil {
				failure = err
			}
			c.Count(values, s.counters.Inexact() == nil)
		}
		c.Write(rows, &s.series[i])
	})
	if err = errors.Join(err, failure); err != nil {
		return fmt.Errorf("sampling variables: %w", err)
	}
	return nil
}

// Close releases the connection, and ends the counters.
func (s *Source) Close() error {
	if s.counters == nil {
		return s.conn.Close()
	}
	return errors.Join(s.conn.Close(), s.counters.Close())
}
