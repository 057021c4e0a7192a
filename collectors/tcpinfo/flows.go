package tcpinfo

import (
	"errors"

	"dumbbell/collectors/row"
)

// exactUpTo is how many sockets are asked for one by one: a dump of all costs
// as much as about 70 of them.
const exactUpTo = 70

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
	f.destroyed.Receive()
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
