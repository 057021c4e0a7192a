package tcpinfo

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"dumbbell/collectors/row"
)

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
	s.destroyed.Receive()
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
