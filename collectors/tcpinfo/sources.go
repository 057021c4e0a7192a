package tcpinfo

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"dumbbell/collectors/sample"
)

// exactUpTo is how many sockets are asked for one by one: a dump of all costs
// as much as about 70 of them.
const exactUpTo = 70

// final says that a row is a socket's last state, sent when it was destroyed.
const final = "final"

// An Extension knows more of sockets, by their cookies, than tcp_info does.
type Extension interface {
	// AddFields writes what it knows of a socket to a row.
	AddFields(cookie uint64, rows *sample.Rows) error
	// Forget says that a socket has ended and its last row is written.
	Forget(cookie uint64) error
	Close() error
}

type nothing struct{}

func (nothing) AddFields(uint64, *sample.Rows) error { return nil }
func (nothing) Forget(uint64) error                  { return nil }
func (nothing) Close() error                         { return nil }

// addAll writes all that is known of a socket to a row: of one that has ended
// for the last time.
func addAll(rows *sample.Rows, s *Sample, more Extension, ended bool) error {
	s.AddFields(rows)
	err := more.AddFields(s.Cookie, rows)
	if ended {
		rows.Bool(final, true)
		err = errors.Join(err, more.Forget(s.Cookie))
	}
	return err
}

// A Flow is a TCP connection known in advance.
type Flow struct {
	Tags  sample.Tags
	Tuple Tuple // as this host sees it
}

// Flows samples the sockets of flows known in advance. A flow that does not
// exist yet, or no more, has no rows; its last row is that of its end.
type Flows struct {
	// Observe, if set, gets each sample of a flow, by the flow's number, before it
	// becomes a row.
	Observe func(flow int, s *Sample, ended bool)

	conn      *Conn
	destroyed *Destroyed
	more      Extension
	flows     []flow
	index     map[Tuple]int
	socket    Sample

	asked   []int   // flows whose sockets are asked for
	tuples  []Tuple // theirs
	rows    *sample.Rows
	failure error
}

type flow struct {
	series sample.Series
	tuple  Tuple
	state  flowState
}

type flowState uint8

const (
	unseen flowState = iota
	seen
	ended
)

// NewFlows opens the connections to the kernel.
func NewFlows(flows []Flow) (*Flows, error) {
	f := &Flows{more: nothing{}, index: make(map[Tuple]int)}
	for i, next := range flows {
		f.flows = append(f.flows, flow{series: sample.NewSeries("tcp_info", next.Tags), tuple: next.Tuple})
		f.index[next.Tuple] = i
	}
	var err error
	if f.conn, err = Dial(); err != nil {
		return nil, err
	}
	tuples := f.index // read by another goroutine, and never written from here on
	f.destroyed, err = DialDestroyed(func(s *Sample) bool { _, ok := tuples[s.Tuple]; return ok })
	if err != nil {
		return nil, errors.Join(err, f.conn.Close())
	}
	return f, nil
}

// Extend makes all rows have what the extension knows, and closes it in the end.
func (f *Flows) Extend(e Extension) { f.more = e }

// Close releases the connections.
func (f *Flows) Close() error {
	return errors.Join(f.conn.Close(), f.destroyed.Close(), f.more.Close())
}

// Sample writes a row for each flow whose socket carries data, and for each
// that has ended.
func (f *Flows) Sample(rows *sample.Rows) error {
	f.rows, f.failure = rows, nil
	f.asked, f.tuples = f.asked[:0], f.tuples[:0]
	for i := range f.flows {
		if f.flows[i].state != ended {
			f.asked, f.tuples = append(f.asked, i), append(f.tuples, f.flows[i].tuple)
		}
	}
	var err error
	if len(f.tuples) <= exactUpTo {
		err = f.conn.GetAll(TCP, f.tuples, &f.socket, f.got)
	} else {
		err = f.conn.Dump(Filter{}, &f.socket, f.dumped)
	}
	_, finishErr := f.Finish(rows)
	return errors.Join(err, f.failure, finishErr)
}

func (f *Flows) got(i int, err error) {
	switch {
	case err == nil:
		f.write(f.asked[i])
	case !errors.Is(err, ErrNotFound) && f.failure == nil:
		f.failure = err
	}
}

func (f *Flows) dumped() {
	if i, ok := f.index[f.socket.Tuple]; ok {
		f.write(i)
	}
}

func (f *Flows) write(i int) {
	f.flows[i].state = seen
	f.observe(i, &f.socket, false)
	f.rows.Begin(f.flows[i].series)
	if err := addAll(f.rows, &f.socket, f.more, false); err != nil && f.failure == nil {
		f.failure = err
	}
	f.rows.End(f.socket.Time)
}

func (f *Flows) observe(i int, s *Sample, ended bool) {
	if f.Observe != nil {
		f.Observe(i, s, ended)
	}
}

// Finish writes rows of flows that have ended and reports how many have been
// sampled whose end is not known.
func (f *Flows) Finish(rows *sample.Rows) (open int, err error) {
	for _, s := range f.destroyed.Take() {
		i := f.index[s.Tuple]
		f.flows[i].state = ended
		f.observe(i, &s, true)
		rows.Begin(f.flows[i].series)
		err = errors.Join(err, addAll(rows, &s, f.more, true))
		rows.End(s.Time)
	}
	for i := range f.flows {
		if f.flows[i].state == seen {
			open++
		}
	}
	return open, err
}

// FinalsLost counts the times at which ends of sockets could not be received.
func (f *Flows) FinalsLost() int64 { return f.destroyed.Lost() }

// Sockets samples the TCP sockets of any program that pass a filter. Each has
// a slot, a small number that is given to another socket when it has ended, so
// that a year of connections makes no more series than there were at once. It
// is a tag, whose name is chosen.
type Sockets struct {
	conn      *Conn
	destroyed *Destroyed
	more      Extension
	filter    Filter
	tags      sample.Tags
	slotTag   string
	socket    Sample
	numbers   map[uint64]int // of slots, by cookie
	slots     []slot
	free      []int // numbers, the lowest last
	round     uint64
	rows      *sample.Rows
	failure   error
}

type slot struct {
	series        sample.Series
	local, remote string
	round         uint64 // in which its socket was seen last
}

// NewSockets opens the connections to the kernel.
func NewSockets(tags sample.Tags, slotTag string, filter Filter) (*Sockets, error) {
	s := &Sockets{more: nothing{}, filter: filter, tags: tags, slotTag: slotTag, numbers: make(map[uint64]int)}
	var err error
	if s.conn, err = Dial(); err != nil {
		return nil, err
	}
	s.destroyed, err = DialDestroyed(filter.passes)
	if err != nil {
		return nil, errors.Join(err, s.conn.Close())
	}
	return s, nil
}

// Extend makes all rows have what the extension knows, and closes it in the end.
func (s *Sockets) Extend(e Extension) { s.more = e }

// Close releases the connections.
func (s *Sockets) Close() error {
	return errors.Join(s.conn.Close(), s.destroyed.Close(), s.more.Close())
}

// Sample writes a row for each socket that passes the filter, and for each
// that has ended.
func (s *Sockets) Sample(rows *sample.Rows) error {
	s.rows, s.failure = rows, nil
	s.round++
	err := s.conn.Dump(s.filter, &s.socket, s.dumped)
	for _, end := range s.destroyed.Take() {
		if _, known := s.numbers[end.Cookie]; !known && s.filter.Cgroup != 0 {
			err = errors.Join(err, s.more.Forget(end.Cookie))
			continue // its cgroup is not told: it may be another's
		}
		s.write(&end, true)
		s.release(end.Cookie)
	}
	for cookie, n := range s.numbers {
		if s.slots[n].round+1 < s.round { // its end was lost
			s.release(cookie)
		}
	}
	if err = errors.Join(err, s.failure); err != nil {
		return fmt.Errorf("sampling TCP sockets: %w", err)
	}
	return nil
}

// FinalsLost counts the times at which ends of sockets could not be received.
func (s *Sockets) FinalsLost() int64 { return s.destroyed.Lost() }

func (s *Sockets) dumped() { s.write(&s.socket, false) }

func (s *Sockets) write(socket *Sample, isFinal bool) {
	n, ok := s.numbers[socket.Cookie]
	if !ok {
		n = s.assign(socket)
	}
	slot := &s.slots[n]
	slot.round = s.round
	s.rows.Begin(slot.series)
	if err := addAll(s.rows, socket, s.more, isFinal); err != nil && s.failure == nil {
		s.failure = err
	}
	s.rows.String("local", slot.local)
	s.rows.String("remote", slot.remote)
	s.rows.End(socket.Time)
}

// assign gives a socket the lowest free slot.
func (s *Sockets) assign(socket *Sample) (n int) {
	if last := len(s.free) - 1; last >= 0 {
		n = s.free[last]
		s.free = s.free[:last]
	} else {
		n = len(s.slots)
		s.slots = append(s.slots, slot{series: sample.NewSeries("tcp_info", s.tags.With(s.slotTag, strconv.Itoa(n)))})
	}
	s.slots[n].local, s.slots[n].remote = socket.Tuple.Local.String(), socket.Tuple.Remote.String()
	s.numbers[socket.Cookie] = n
	return n
}

func (s *Sockets) release(cookie uint64) {
	n := s.numbers[cookie]
	delete(s.numbers, cookie)
	at, _ := slices.BinarySearchFunc(s.free, n, func(a, b int) int { return b - a })
	s.free = slices.Insert(s.free, at, n)
}
