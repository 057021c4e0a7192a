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

	"dumbbell/collectors/sample"
)

// A Source writes a row for each counter that has changed since the sample
// before, with its total and the difference; for the first sample, a row with
// the total of each. So a counter without a row did not move.
type Source struct {
	tags  sample.Tags
	files []*file
	last  time.Time
}

type file struct {
	*sample.File
	pairs    bool // lines of names and lines of values, by turns; else a name and a value on each line
	heads    [][]byte
	counters [][]counter // of each line of values
}

type counter struct {
	series sample.Series
	total  int64
}

// NewSource opens the files. That of IPv6 may be missing.
func NewSource(tags sample.Tags) (*Source, error) {
	s := &Source{tags: tags}
	for _, name := range []string{"snmp", "netstat", "snmp6"} {
		f, err := sample.OpenFile("/proc/thread-self/net/" + name)
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
func (s *Source) Sample(rows *sample.Rows) error {
	var failures []error
	interval := time.Duration(0)
	now := time.Now()
	if !s.last.IsZero() {
		interval = now.Sub(s.last)
	}
	s.last = now
	for _, f := range s.files {
		b, err := f.Read()
		if err == nil {
			err = f.sample(b, rows, s.tags, now, interval)
		}
		if err != nil {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

func (f *file) sample(b []byte, rows *sample.Rows, tags sample.Tags, now time.Time, interval time.Duration) error {
	for n := 0; len(b) > 0; n++ {
		var head, values []byte
		head, b, _ = bytes.Cut(b, []byte("\n"))
		if f.pairs {
			values, b, _ = bytes.Cut(b, []byte("\n"))
			if _, values, _ = bytes.Cut(values, []byte(":")); values == nil {
				return fmt.Errorf("counters: no values for %q", head)
			}
		} else if at := bytes.IndexAny(head, " \t"); at > 0 {
			head, values = head[:at], head[at:]
		}
		isNew := n == len(f.heads)
		if isNew {
			f.heads, f.counters = append(f.heads, nil), append(f.counters, nil)
		}
		if !bytes.Equal(f.heads[n], head) {
			f.heads[n] = bytes.Clone(head)
			f.counters[n] = named(head, f.pairs, tags)
			isNew = true
		}
		for i := range f.counters[n] {
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
			c := &f.counters[n][i]
			if !isNew && total == c.total {
				continue
			}
			rows.Begin(c.series)
			rows.Int("total", total)
			if !isNew {
				rows.Int("delta", total-c.total)
				rows.Int("interval_ns", interval.Nanoseconds())
			}
			rows.End(now)
			c.total = total
		}
	}
	return nil
}

// named makes the counters that a line names: "Tcp: RtoMin RtoMax", or one of snmp6.
func named(head []byte, pairs bool, tags sample.Tags) (counters []counter) {
	add := func(name string) {
		counters = append(counters, counter{series: sample.NewSeries("snmp", tags.With("name", name))})
	}
	if !pairs {
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
