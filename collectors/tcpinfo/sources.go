package tcpinfo

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"dumbbell/collectors/row"
)

// exactUpTo is how many sockets are asked for one by one: a dump of all costs
// as much as about 70 of them.
const exactUpTo = 70

// final says that a row is a socket's last state, sent when it was destroyed.
const final = "final"

// An Extension knows more of sockets, by their cookies, than tcp_info does.
type Extension interface {
	// AddFields writes what it knows of a socket to a row.
	AddFields(cookie uint64, rows *row.Rows) error
	// Forget says that a socket has ended and its last row is written.
	Forget(cookie uint64) error
	// Sweep forgets sockets of whose end nothing was heard: those that were not
	// alive at the sweep before and are not now.
	Sweep(alive func(cookie uint64) bool) error
	Close() error
}

type nothing struct{}

func (nothing) AddFields(uint64, *row.Rows) error { return nil }
func (nothing) Forget(uint64) error               { return nil }
func (nothing) Sweep(func(uint64) bool) error     { return nil }
func (nothing) Close() error                      { return nil }

// addAll writes all that is known of a socket to a row: of one that has ended
// for the last time.
func addAll(rows *row.Rows, s *Sample, more Extension, ended bool) error {
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
	Tags  row.Tags
	Tuple Tuple // as this host sees it
}

// Flows samples the sockets of flows known in advance. A flow that does not
// exist yet, or no more, has no rows; its last row is that of its end. A socket
// is known by its cookie: others may have had its tuple before.
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
	rows    *row.Rows
	failure error
}

type flow struct {
	series row.Series
	tuple  Tuple
	before uint64  // cookie of the socket that had the tuple before the flow; 0: there was none
	cookie uint64  // of the flow's socket; 0: it was not seen yet
	ended  bool    // with its last row written
	unseen *Sample // end of a socket that was never sampled: the flow's, unless a later one is
}

// NewFlows opens the connections to the kernel.
func NewFlows(flows []Flow) (*Flows, error) {
	f := &Flows{more: nothing{}, index: make(map[Tuple]int)}
	for i, next := range flows {
		f.flows = append(f.flows, flow{series: row.NewSeries("tcp_info", next.Tags), tuple: next.Tuple})
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

// IgnorePresent says that the flows are yet to begin: sockets that have their
// tuples now are not theirs.
func (f *Flows) IgnorePresent() error {
	var tuples []Tuple
	for _, flow := range f.flows {
		tuples = append(tuples, flow.tuple)
	}
	var failure error
	err := f.conn.GetAll(TCP, tuples, &f.socket, func(i int, err error) {
		if err == nil {
			f.flows[i].before = f.socket.Cookie
		} else if !errors.Is(err, ErrNotFound) {
			failure = err
		}
	})
	return errors.Join(err, failure)
}

// Extend makes all rows have what the extension knows, and closes it in the end.
func (f *Flows) Extend(e Extension) { f.more = e }

// Close releases the connections.
func (f *Flows) Close() error {
	return errors.Join(f.conn.Close(), f.destroyed.Close(), f.more.Close())
}

// Sample writes a row for each flow whose socket carries data, and for each
// that has ended.
func (f *Flows) Sample(rows *row.Rows) error {
	f.rows, f.failure = rows, nil
	f.asked, f.tuples = f.asked[:0], f.tuples[:0]
	for i := range f.flows {
		if !f.flows[i].ended {
			f.asked, f.tuples = append(f.asked, i), append(f.tuples, f.flows[i].tuple)
		}
	}
	var err error
	if len(f.tuples) <= exactUpTo {
		err = f.conn.GetAll(TCP, f.tuples, &f.socket, f.got)
	} else {
		err = f.conn.Dump(Filter{}, &f.socket, f.dumped)
	}
	return errors.Join(err, f.failure, f.takeEnds(rows))
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
	flow := &f.flows[i]
	if f.socket.Cookie == flow.before {
		return
	}
	var err error
	if flow.cookie != f.socket.Cookie {
		if flow.cookie != 0 { // its end was lost
			err = f.more.Forget(flow.cookie)
		}
		flow.cookie = f.socket.Cookie
	}
	f.observe(i, &f.socket, false)
	f.rows.Begin(flow.series)
	err = errors.Join(err, addAll(f.rows, &f.socket, f.more, false))
	f.rows.End(f.socket.Time)
	if err != nil && f.failure == nil {
		f.failure = err
	}
}

func (f *Flows) observe(i int, s *Sample, ended bool) {
	if f.Observe != nil {
		f.Observe(i, s, ended)
	}
}

// takeEnds writes rows of sampled sockets that have ended.
func (f *Flows) takeEnds(rows *row.Rows) error {
	var failures []error
	for _, s := range f.destroyed.Take() {
		i := f.index[s.Tuple]
		flow := &f.flows[i]
		switch {
		case s.Cookie == flow.before || flow.cookie != 0 && flow.cookie != s.Cookie: // it is not the flow's
			failures = append(failures, f.more.Forget(s.Cookie))
		case flow.cookie == 0:
			if flow.unseen != nil {
				failures = append(failures, f.more.Forget(flow.unseen.Cookie))
			}
			flow.unseen = &s
		default:
			failures = append(failures, f.writeEnd(rows, i, &s))
		}
	}
	return errors.Join(failures...)
}

func (f *Flows) writeEnd(rows *row.Rows, i int, s *Sample) error {
	flow := &f.flows[i]
	flow.ended = true
	f.observe(i, s, true)
	rows.Begin(flow.series)
	err := addAll(rows, s, f.more, true)
	rows.End(s.Time)
	return err
}

// Finish is the last sample. It writes rows of sockets that have ended, also of
// those that were too short to be sampled before.
func (f *Flows) Finish(rows *row.Rows) error {
	failures := []error{f.takeEnds(rows)}
	for i := range f.flows {
		flow := &f.flows[i]
		if s := flow.unseen; s != nil {
			flow.unseen = nil
			if flow.cookie == 0 {
				flow.cookie = s.Cookie
				failures = append(failures, f.writeEnd(rows, i, s))
			} else { // another socket was the flow's
				failures = append(failures, f.more.Forget(s.Cookie))
			}
		}
	}
	return errors.Join(failures...)
}

// Open is how many flows have been sampled whose end is not known.
func (f *Flows) Open() (open int) {
	for i := range f.flows {
		if f.flows[i].cookie != 0 && !f.flows[i].ended {
			open++
		}
	}
	return open
}

// FinalsLost counts the sockets of this host whose end could not be received.
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
	tags      row.Tags
	slotTag   string
	socket    Sample
	numbers   map[uint64]int // of slots, by cookie
	slots     []slot
	free      []int // numbers, the lowest last
	round     uint64
	lost      int64 // ends, when they were counted last
	sweeps    int   // that are to come since then
	rows      *row.Rows
	failure   error
}

type slot struct {
	series        row.Series
	local, remote string
	round         uint64 // in which its socket was seen last
}

// NewSockets opens the connections to the kernel.
func NewSockets(tags row.Tags, slotTag string, filter Filter) (*Sockets, error) {
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
func (s *Sockets) Sample(rows *row.Rows) error {
	s.rows, s.failure = rows, nil
	s.round++
	err := s.conn.Dump(s.filter, &s.socket, s.dumped)
	err = errors.Join(err, s.takeEnds())
	for cookie, n := range s.numbers {
		if s.slots[n].round+1 < s.round { // its end was lost
			s.release(cookie)
		}
	}
	if lost := s.destroyed.Lost(); lost != s.lost {
		s.lost, s.sweeps = lost, 2
	}
	if s.sweeps > 0 && err == nil {
		s.sweeps--
		err = s.more.Sweep(s.alive)
	}
	return s.failed(err)
}

// alive tells of a socket whether the dump had it.
func (s *Sockets) alive(cookie uint64) bool {
	n, known := s.numbers[cookie]
	return known && s.slots[n].round == s.round
}

// Finish is the last sample: it writes rows of sockets that have ended.
func (s *Sockets) Finish(rows *row.Rows) error {
	s.rows, s.failure = rows, nil
	return s.failed(s.takeEnds())
}

func (s *Sockets) failed(err error) error {
	if err = errors.Join(err, s.failure); err != nil {
		return fmt.Errorf("sampling TCP sockets: %w", err)
	}
	return nil
}

func (s *Sockets) takeEnds() (err error) {
	for _, end := range s.destroyed.Take() {
		if _, known := s.numbers[end.Cookie]; !known && s.filter.Cgroup != 0 {
			err = errors.Join(err, s.more.Forget(end.Cookie))
			continue // its cgroup is not told: it may be another's
		}
		s.write(&end, true)
		s.release(end.Cookie)
	}
	return err
}

// Open is how many sockets have been sampled whose end is not known.
func (s *Sockets) Open() int { return len(s.numbers) }

// FinalsLost counts the sockets of this host whose end could not be received.
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
		s.slots = append(s.slots, slot{series: row.NewSeries("tcp_info", s.tags.With(s.slotTag, strconv.Itoa(n)))})
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
