package web100

import (
	"errors"
	"fmt"
	"time"

	"dumbbell/collectors/sample"
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
	samples      int
	receiveQueue int64
	maximum      [maxima]int64
	seen         [maxima]bool
	signals      int64
	reductions   int64
	caState      int64
	cwnd         int64
	first, last  time.Time
	busyBefore   int64
}

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
	const open, cwr = 0, 2 // enum tcp_ca_state
	if c.samples == 0 {
		c.first = s.Time
		c.busyBefore, _ = c.now(busyField)
	} else {
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

func (c *Connection) raise(i int, v int64) {
	c.maximum[i], c.seen[i] = max(c.maximum[i], v), true
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

// AddFields writes those variables that tcp_info gives, by their names.
func (c *Connection) AddFields(rows *sample.Rows) {
	for i := range Variables {
		v := &Variables[i]
		for _, w := range v.Ways {
			if w.value == nil {
				continue
			}
			if value, ok := w.value(c); ok {
				rows.Int(v.Name, value)
				break
			}
		}
	}
}

// A Source samples connections known in advance and writes their variables.
type Source struct {
	conn        *tcpinfo.Conn
	series      []sample.Series
	tuples      []tcpinfo.Tuple
	connections []Connection
	socket      tcpinfo.Sample
}

// NewSource opens a connection to the kernel.
func NewSource(flows []tcpinfo.Flow) (*Source, error) {
	conn, err := tcpinfo.Dial()
	if err != nil {
		return nil, err
	}
	s := &Source{conn: conn, connections: make([]Connection, len(flows))}
	for _, f := range flows {
		s.series = append(s.series, sample.NewSeries("web100", f.Tags))
		s.tuples = append(s.tuples, f.Tuple)
	}
	return s, nil
}

// Sample writes a row for each connection that exists.
func (s *Source) Sample(rows *sample.Rows) error {
	var failure error
	err := s.conn.GetAll(tcpinfo.TCP, s.tuples, &s.socket, func(i int, err error) {
		if err != nil {
			if !errors.Is(err, tcpinfo.ErrNotFound) {
				failure = err
			}
			return
		}
		s.connections[i].Observe(&s.socket)
		rows.Begin(s.series[i])
		s.connections[i].AddFields(rows)
		rows.End(s.socket.Time)
	})
	if err = errors.Join(err, failure); err != nil {
		return fmt.Errorf("sampling variables: %w", err)
	}
	return nil
}

// Close releases the connection.
func (s *Source) Close() error { return s.conn.Close() }
