// Package cpu reads what each CPU did: its times, and its part in receiving
// and sending packets.
package cpu

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"

	"dumbbell/collectors/kernel"
	"dumbbell/collectors/row"
)

// times are the columns of /proc/stat, in units of 10 ms on every architecture.
var times = [...]string{"user_ms", "nice_ms", "system_ms", "idle_ms", "iowait_ms", "irq_ms", "softirq_ms", "steal_ms"}

const msPerTick = 10

// A Source writes a row for each CPU that is online. All its fields only grow.
type Source struct {
	tags                    row.Tags
	stat, softirqs, softnet *kernel.File
	cpus                    []cpu // by number
}

type cpu struct {
	series  row.Series
	time    [len(times)]int64
	present bool
	rx, tx  int64
	softnet [3]int64
}

// NewSource opens the files.
func NewSource(tags row.Tags) (*Source, error) {
	s := &Source{tags: tags}
	for path, f := range map[string]**kernel.File{
		"/proc/stat": &s.stat, "/proc/softirqs": &s.softirqs, "/proc/thread-self/net/softnet_stat": &s.softnet,
	} {
		var err error
		if *f, err = kernel.OpenFile(path); err != nil {
			return nil, errors.Join(fmt.Errorf("opening the times of CPUs: %w", err), s.Close())
		}
	}
	return s, nil
}

// Close closes the files.
func (s *Source) Close() error {
	var failures []error
	for _, f := range []*kernel.File{s.stat, s.softirqs, s.softnet} {
		if f != nil {
			failures = append(failures, f.Close())
		}
	}
	return errors.Join(failures...)
}

// Sample reads the files.
func (s *Source) Sample(rows *row.Rows) error {
	for i := range s.cpus {
		s.cpus[i].present = false
	}
	now := time.Now()
	for f, parse := range map[*kernel.File]func([]byte) error{s.stat: s.parseStat, s.softirqs: s.parseSoftirqs, s.softnet: s.parseSoftnet} {
		b, err := f.Read()
		if err == nil {
			err = parse(b)
		}
		if err != nil {
			return fmt.Errorf("times of CPUs: %w", err)
		}
	}
	for i := range s.cpus {
		c := &s.cpus[i]
		if !c.present {
			continue
		}
		rows.Begin(c.series)
		for i, name := range times {
			rows.Int(name, c.time[i])
		}
		rows.Int("softirq_net_rx", c.rx)
		rows.Int("softirq_net_tx", c.tx)
		rows.Int("softnet_processed", c.softnet[0])
		rows.Int("softnet_dropped", c.softnet[1])
		rows.Int("softnet_time_squeeze", c.softnet[2])
		rows.End(now)
	}
	return nil
}

// find returns the CPU of a number.
func (s *Source) find(number int) *cpu {
	for len(s.cpus) <= number {
		s.cpus = append(s.cpus, cpu{series: row.NewSeries("cpu_core", s.tags.With("cpu", strconv.Itoa(len(s.cpus))))})
	}
	return &s.cpus[number]
}

// maxCPUs bounds what a damaged file can ask for.
const maxCPUs = 8192

func number(b []byte) (int, error) {
	n, err := strconv.Atoi(string(b))
	if err != nil || n < 0 || n >= maxCPUs {
		return 0, fmt.Errorf("%q is no number of a CPU", b)
	}
	return n, nil
}

func (s *Source) parseStat(b []byte) error {
	for line := range bytes.Lines(b) {
		columns := bytes.Fields(line)
		if len(columns) <= len(times) || !bytes.HasPrefix(columns[0], []byte("cpu")) || len(columns[0]) == len("cpu") {
			continue
		}
		n, err := number(columns[0][len("cpu"):])
		if err != nil {
			return err
		}
		c := s.find(n)
		c.present = true
		for i := range times {
			ticks, err := strconv.ParseInt(string(columns[1+i]), 10, 64)
			if err != nil {
				return fmt.Errorf("/proc/stat: %w", err)
			}
			c.time[i] = ticks * msPerTick
		}
	}
	return nil
}

func (s *Source) parseSoftirqs(b []byte) error {
	var header [][]byte
	for line := range bytes.Lines(b) {
		columns := bytes.Fields(line)
		if header == nil {
			header = columns
			continue
		}
		if len(columns) != len(header)+1 {
			continue
		}
		kind := string(columns[0])
		if kind != "NET_RX:" && kind != "NET_TX:" {
			continue
		}
		for i, name := range header {
			n, err := number(bytes.TrimPrefix(name, []byte("CPU")))
			if err != nil {
				return err
			}
			v, err := strconv.ParseInt(string(columns[1+i]), 10, 64)
			if err != nil {
				return fmt.Errorf("/proc/softirqs: %w", err)
			}
			if c := s.find(n); kind == "NET_RX:" {
				c.rx = v
			} else {
				c.tx = v
			}
		}
	}
	return nil
}

// parseSoftnet reads hexadecimal columns of net/core/net-procfs.c, of which
// the 13th is the CPU.
func (s *Source) parseSoftnet(b []byte) error {
	n := -1
	for line := range bytes.Lines(b) {
		columns := bytes.Fields(line)
		if n++; len(columns) < 3 {
			continue
		}
		at := n
		if len(columns) >= 13 {
			v, err := strconv.ParseUint(string(columns[12]), 16, 32)
			if err != nil || v >= maxCPUs {
				return fmt.Errorf("softnet_stat: %q is no number of a CPU", columns[12])
			}
			at = int(v)
		}
		c := s.find(at)
		for i := range c.softnet {
			v, err := strconv.ParseUint(string(columns[i]), 16, 32)
			if err != nil {
				return fmt.Errorf("softnet_stat: %w", err)
			}
			c.softnet[i] = int64(v)
		}
	}
	return nil
}
