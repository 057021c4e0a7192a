// Package snmp reads the counters of the network stack of this network
// namespace: /proc/net/snmp, snmp6 and netstat, by the names that nstat gives
// them (TcpRetransSegs, TcpExtTCPTimeouts).
package snmp

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"dumbbell/collectors/kernel"
	"dumbbell/collectors/row"
)

// A Source writes a row for each counter that has changed since the sample
// before, with its total and the difference; for the first sample, a row with
// the total of each. So a counter without a row did not move.
type Source struct {
	tags  row.Tags
	files []*file
}

type file struct {
	*kernel.File
	pairs    bool // lines of names and lines of values, by turns; else a name and a value on each line
	counters map[string]*counter
	lines    []line    // as they were last, so that names are read again only where they have changed
	last     time.Time // of the sample before
	complete bool      // all counters have been read once: another is new, and counts from 0
}

type line struct {
	head     []byte
	counters []*counter // that it names, in its order
}

type counter struct {
	series row.Series
	known  bool
	total  int64
}

// NewSource opens the files. That of IPv6 may be missing.
func NewSource(tags row.Tags) (*Source, error) {
	s := &Source{tags: tags}
	for _, name := range []string{"snmp", "netstat", "snmp6"} {
		f, err := kernel.OpenFile("/proc/thread-self/net/" + name)
		if name == "snmp6" && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("opening the counters of the network stack: %w", err), s.Close())
		}
		s.files = append(s.files, &file{File: f, pairs: name != "snmp6"})
	}
	return s, nil
}

// Close closes the files.
func (s *Source) Close() error {
	var failures []error
	for _, f := range s.files {
		failures = append(failures, f.Close())
	}
	return errors.Join(failures...)
}

// Sample reads all files.
func (s *Source) Sample(rows *row.Rows) error {
	var failures []error
	for _, f := range s.files {
		now := time.Now()
		b, err := f.Read()
		if err == nil {
			err = f.sample(b, rows, s.tags, now)
		}
		if err != nil {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

func (f *file) sample(b []byte, rows *row.Rows, tags row.Tags, now time.Time) error {
	interval := now.Sub(f.last)
	for n := 0; len(b) > 0; n++ {
		var head, values []byte
		head, b, _ = bytes.Cut(b, []byte("\n"))
		if f.pairs {
			values, b, _ = bytes.Cut(b, []byte("\n"))
			prefix := head[:bytes.IndexByte(head, ':')+1]
			if len(prefix) == 0 || !bytes.HasPrefix(values, prefix) {
				return fmt.Errorf("counters: no values for %q", head)
			}
			values = values[len(prefix):]
		} else if at := bytes.IndexAny(head, " \t"); at > 0 {
			head, values = head[:at], head[at:]
		}
		if n == len(f.lines) {
			f.lines = append(f.lines, line{})
		}
		if !bytes.Equal(f.lines[n].head, head) {
			f.lines[n] = line{bytes.Clone(head), f.named(head, tags)}
		}
		for i, c := range f.lines[n].counters {
			var text []byte
			values = bytes.TrimLeft(values, " \t")
			if end := bytes.IndexByte(values, ' '); end >= 0 {
				text, values = values[:end], values[end:]
			} else {
				text, values = values, nil
			}
			total, err := number(text)
			if err != nil {
				return fmt.Errorf("counters: value %d of %q: %w", i+1, head, err)
			}
			since := c.known || f.complete
			if since && total == c.total {
				continue
			}
			rows.Begin(c.series)
			rows.Int("total", total)
			if since {
				rows.Int("delta", total-c.total)
				rows.Int("interval_ns", interval.Nanoseconds())
			}
			rows.End(now)
			c.total, c.known = total, true
		}
	}
	f.last, f.complete = now, true
	return nil
}

// named returns the counters that a line names: "Tcp: RtoMin RtoMax", or one of snmp6.
func (f *file) named(head []byte, tags row.Tags) (counters []*counter) {
	if f.counters == nil {
		f.counters = make(map[string]*counter)
	}
	add := func(name string) {
		c, ok := f.counters[name]
		if !ok {
			c = &counter{series: row.NewSeries("snmp", tags.With("name", name))}
			f.counters[name] = c
		}
		counters = append(counters, c)
	}
	if !f.pairs {
		add(string(head))
		return counters
	}
	prefix, names, _ := bytes.Cut(head, []byte(":"))
	for _, name := range bytes.Fields(names) {
		add(string(prefix) + string(name))
	}
	return counters
}

// number reads what fits 64 bits signed or unsigned; TcpMaxConn is -1.
func number(text []byte) (int64, error) {
	v := uint64(0)
	for _, c := range text {
		if c < '0' || c > '9' || v > 1<<60 {
			v, err := strconv.ParseInt(string(text), 10, 64)
			if err != nil {
				u, err := strconv.ParseUint(string(text), 10, 64)
				return int64(u), err
			}
			return v, nil
		}
		v = 10*v + uint64(c-'0')
	}
	if len(text) == 0 {
		return 0, errors.New("missing")
	}
	return int64(v), nil
}
