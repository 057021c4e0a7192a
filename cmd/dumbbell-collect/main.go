// Dumbbell-collect samples any host outside a run: its TCP sockets, queues,
// counters and clock, to a terminal, as line protocol (for Telegraf's execd
// input), or into a spool.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"dumbbell/collectors/clock"
	"dumbbell/collectors/cpu"
	"dumbbell/collectors/ebpf"
	"dumbbell/collectors/link"
	"dumbbell/collectors/ntp"
	"dumbbell/collectors/pace"
	"dumbbell/collectors/qdisc"
	"dumbbell/collectors/row"
	"dumbbell/collectors/sampling"
	"dumbbell/collectors/snmp"
	"dumbbell/collectors/spool"
	"dumbbell/collectors/tcpinfo"
	"dumbbell/collectors/trace"
	"dumbbell/collectors/web100"
)

var version = "unknown" // set by the linker: -X main.version=...

const usage = `usage: dumbbell-collect SOURCE[,SOURCE...] [flags]   sample until the end or a signal
       dumbbell-collect probe                          say what this host and this user allow
       dumbbell-collect version

sources: tcp ebpf web100 qdisc link snmp cpu clock trace
  tcp     every socket, or those chosen by --port, --cgroup or --tuple
  ebpf    tcp, and what programs in the kernel count from now on of each; needs CAP_BPF and CAP_PERFMON
  web100  a --tuple by the names of RFC 4898
  trace   every segment that arrives for a --tuple, and drops by reason; needs root

flags:
`

type options struct {
	interval, duration time.Duration
	ports              []uint16
	cgroup             string
	tuples             []tcpinfo.Tuple
	format             string
	spool              string
	tags               row.Tags
	chrony             string
}

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			os.Exit(2)
		}
		fmt.Fprintln(os.Stderr, "dumbbell-collect:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	o := options{tags: row.Tags{}}
	if host, err := os.Hostname(); err == nil {
		o.tags["host"] = host
	}
	flags := flag.NewFlagSet("dumbbell-collect", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage); flags.PrintDefaults() }
	flags.DurationVar(&o.interval, "interval", 100*time.Millisecond, "between samples, from 1ms")
	flags.DurationVar(&o.duration, "duration", 0, "how long; 0 is until a signal")
	flags.Func("port", "of sockets, at either end; may be given again", func(s string) error {
		port, err := strconv.ParseUint(s, 10, 16)
		o.ports = append(o.ports, uint16(port))
		return err
	})
	flags.StringVar(&o.cgroup, "cgroup", "", "of sockets: a `directory` of the cgroup file system, version 2")
	flags.Func("tuple", "of one socket, as this host sees it: `local,remote`, such as 10.0.0.1:40001,10.0.0.2:5201; may be given again", func(s string) error {
		t, err := tcpinfo.ParseTuple(s)
		o.tuples = append(o.tuples, t)
		return err
	})
	flags.StringVar(&o.format, "format", "line", "line, or table for a terminal (tcp only)")
	flags.StringVar(&o.spool, "spool", "", "append to this `file` instead of the standard output")
	flags.Func("tag", "`name=value` for every row; may be given again", func(s string) error {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" || value == "" {
			return errors.New("is not name=value")
		}
		o.tags[name] = value
		return nil
	})
	flags.StringVar(&o.chrony, "chrony", ntp.Chrony, "where chronyd answers")
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		flags.Usage()
		return flag.ErrHelp
	}
	if err := flags.Parse(args[1:]); err != nil {
		return flag.ErrHelp
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("%q is not a flag; sources are joined by commas", flags.Arg(0))
	case o.interval < time.Millisecond:
		return fmt.Errorf("--interval %v is below 1ms", o.interval)
	case args[0] == "version":
		fmt.Fprintln(stdout, version)
		return nil
	case args[0] == "probe":
		return probe(o, stdout)
	}
	sampling.Prefer()
	return o.collect(strings.Split(args[0], ","), stdout, stderr)
}

func (o options) collect(names []string, stdout, stderr io.Writer) (err error) {
	clock, err := clock.New()
	if err != nil {
		return err
	}
	var out interface {
		sampling.Output
		Close() error
	} = &stream{rows: row.NewRows(clock), to: stdout}
	if o.spool != "" {
		s, torn, err := spool.Open(o.spool, clock)
		if err != nil {
			return err
		}
		if torn > 0 {
			fmt.Fprintf(stderr, "dumbbell-collect: removed %d bytes of an incomplete batch from %s\n", torn, o.spool)
		}
		out = s
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	var sources sampling.Sources
	defer func() { err = errors.Join(err, sources.Close()) }()
	for _, name := range names {
		s, err := o.source(name, clock, stdout)
		if err != nil {
			return err
		}
		sources = append(sources, s)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGPIPE)
	defer stop()
	var failure error
	loop := sampling.Loop{Sources: sources, Output: out, Interval: o.interval, Reported: time.Now(), Failed: func(err error) {
		failure = err
		fmt.Fprintln(stderr, "dumbbell-collect:", err)
	}}
	if o.format == "line" {
		loop.Self = row.NewSeries("sampler", o.tags)
	}
	start := time.Now()
	if err := loop.Run(ctx, start, o.duration); err != nil {
		return err
	}
	// The last interval ends with the duration, or with the signal.
	pace.SleepUntil(ctx, start.Add(o.duration))
	if err := errors.Join(loop.Sample(), loop.Add(sources.Finish)); err != nil {
		return err
	}
	r := loop.Report()
	fmt.Fprintf(stderr, "%d of %d samples taken, %d missed, every %v, at most %v late\n",
		r.Sampled, r.Ticks, r.Missed(), r.AchievedInterval, r.LateMax.Round(time.Microsecond))
	for _, s := range sources {
		if s, ok := s.(interface{ FinalsLost() int64 }); ok && s.FinalsLost() > 0 {
			fmt.Fprintf(stderr, "the ends of %d sockets of this host could not be received\n", s.FinalsLost())
		}
	}
	return failure
}

// source opens one source by its name.
func (o options) source(name string, clk clock.Clock, stdout io.Writer) (sampling.Source, error) {
	switch name {
	case "tcp":
		if o.format == "table" && len(o.tuples) == 0 {
			filter, err := o.filter()
			if err != nil {
				return nil, err
			}
			return newTable(filter, stdout)
		}
		return o.sockets()
	case "ebpf":
		counters, err := o.counters()
		if err != nil {
			return nil, err
		}
		s, err := o.sockets()
		if err != nil {
			return nil, errors.Join(err, counters.Close())
		}
		s.Extend(counters)
		return s, nil
	case "qdisc":
		return qdisc.NewSource(o.tags)
	case "link":
		return link.NewSource(o.tags)
	case "snmp":
		return snmp.NewSource(o.tags)
	case "cpu":
		return cpu.NewSource(o.tags)
	case "clock":
		return ntp.NewSource(o.tags, o.chrony), nil
	case "web100":
		if len(o.tuples) == 0 {
			return nil, errors.New("web100 needs a --tuple")
		}
		counters, err := o.counters()
		if err != nil && !errors.Is(err, ebpf.ErrUnavailable) {
			return nil, err
		}
		return web100.NewSource(o.flows(), counters)
	case "trace":
		if len(o.tuples) == 0 {
			return nil, errors.New("trace needs a --tuple")
		}
		return trace.NewSource(o.flows(), o.tags, clk, "")
	}
	return nil, fmt.Errorf("there is no source %q", name)
}

// sockets are those that are chosen.
func (o options) sockets() (interface {
	sampling.Source
	Extend(tcpinfo.Extension)
}, error) {
	if len(o.tuples) > 0 {
		return tcpinfo.NewFlows(o.flows())
	}
	filter, err := o.filter()
	if err != nil {
		return nil, err
	}
	return tcpinfo.NewSockets(o.tags, "slot", filter)
}

func (o options) filter() (f tcpinfo.Filter, err error) {
	f.Ports = o.ports
	if o.cgroup != "" {
		f.Cgroup, err = tcpinfo.CgroupID(o.cgroup)
	}
	return f, err
}

// counters are eBPF's of the sockets that are chosen.
func (o options) counters() (*ebpf.Counters, error) {
	if len(o.tuples) > 0 {
		return ebpf.OpenFlows(o.flows())
	}
	return ebpf.OpenPorts(o.ports)
}

// flows are the sockets given by --tuple, numbered from 0.
func (o options) flows() (flows []tcpinfo.Flow) {
	for i, t := range o.tuples {
		flows = append(flows, tcpinfo.Flow{Tags: o.tags.With("flow", strconv.Itoa(i)), Tuple: t})
	}
	return flows
}

// probe says for each source whether it can be had, and why not.
func probe(o options, stdout io.Writer) error {
	clk, err := clock.New()
	if err != nil {
		return err
	}
	say := func(name string, err error) {
		if err != nil {
			fmt.Fprintf(stdout, "%-28s no: %v\n", name, err)
		} else {
			fmt.Fprintf(stdout, "%-28s yes\n", name)
		}
	}
	for _, name := range []string{"tcp", "qdisc", "link", "snmp", "cpu"} {
		s, err := o.source(name, clk, stdout)
		if err == nil {
			err = s.Close()
		}
		say(name, err)
	}
	_, err = ntp.Ask(o.chrony)
	say("clock (chrony)", err)
	has := map[web100.Capability]bool{web100.Info: true}
	t, err := trace.NewSource(nil, nil, clk, "")
	say("trace", err)
	if err == nil {
		has[web100.Trace] = true
		for _, e := range t.Events() {
			say("trace "+e.Name, e.Unavailable)
			has[web100.Trace] = has[web100.Trace] && e.Unavailable == nil
		}
		if err := t.Close(); err != nil {
			return err
		}
	}
	counters, err := ebpf.OpenFlows(nil)
	say("ebpf", err)
	if err == nil {
		has[web100.EBPF], has[web100.Verdict] = true, counters.Inexact() == nil
		say("ebpf send_stalls", counters.Inexact())
		if err := counters.Close(); err != nil {
			return err
		}
	}
	length, err := tcpinfo.Length()
	if err != nil {
		return err
	}
	has[web100.Info62], has[web100.Info67] = length >= 240, length >= 248
	fmt.Fprintf(stdout, "\ntcp_info has %d bytes. Of a flow, beside counters of the whole host:\n", length)
	for i := range web100.Variables {
		v := &web100.Variables[i]
		grade, way := v.Grade(func(c web100.Capability) bool { return has[c] })
		fmt.Fprintf(stdout, "%-20s %-13s %s\n", v.Name, grade, way.How)
	}
	return nil
}

// A stream writes rows as they come, for Telegraf at once.
type stream struct {
	rows *row.Rows
	to   io.Writer
}

func (s *stream) Add(add func(*row.Rows) error) error { return add(s.rows) }

func (s *stream) FlushDue(time.Duration) error {
	_, err := s.to.Write(s.rows.Bytes())
	s.rows.Reset()
	return err
}

func (s *stream) Close() error { return s.FlushDue(0) }
