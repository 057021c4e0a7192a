package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"dumbbell/collectors/clock"
	"dumbbell/collectors/row"
	"dumbbell/transports/atou/config"
	"dumbbell/transports/atou/handshake"
	"dumbbell/transports/atou/live"
	"dumbbell/transports/atou/record"
)

const (
	resolveWait = 5 * time.Second
	minInterval = time.Millisecond
)

func send(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("send", flag.ContinueOnError)
	var (
		c         = live.SendConfig{Interval: 100 * time.Millisecond}
		tokenFile = flags.String("token-file", "", "`file` with the secret that the receiver has too")
		events    = flags.String("events", "", "write a line for each event to this `file`; default: standard error")
		trace     = flags.String("trace", "", "write a line for each segment and ACK to this `file`")
		kinds     = flags.Bool("trace-kinds", false, "tell repeated and suppressed transmissions in the trace as rxt and drop")
		samples   = flags.String("samples", "", "write the sender's state as line protocol to this `file`")
		report    = flags.String("json", "", "write the summary and all counters to this `file`")
		tags      = row.Tags{}
	)
	flags.Func("mode", "`mode`: precise, one segment a system call and at its time, or bulk, in trains (default precise)", func(s string) (err error) {
		c.Mode, err = live.ParseMode(s)
		return err
	})
	flags.Func("bind", "`address[:port]` to send from; default: the kernel chooses", func(s string) (err error) {
		c.Bind, err = parseAddress(s)
		return err
	})
	flags.Func("interval", "`time` between samples, from 1ms (default 100ms)", func(s string) (err error) {
		c.Interval, err = time.ParseDuration(s)
		if err != nil || c.Interval < minInterval {
			return fmt.Errorf("allowed is a time from %v, such as 100ms", minInterval)
		}
		return nil
	})
	flags.Func("start", "send the first segment at this time, in `ns` since 1970; default: at once", func(s string) error {
		ns, err := strconv.ParseInt(s, 10, 64)
		if err != nil || ns < 0 {
			return errors.New("allowed is a whole number of ns since 1970")
		}
		c.Start = time.Unix(0, ns)
		if late := time.Since(c.Start); late > 0 {
			return fmt.Errorf("that is %v ago (%s); it is in ns since 1970", late.Round(time.Millisecond), c.Start.UTC().Format(time.RFC3339))
		}
		return nil
	})
	flags.Func("tag", "`name=value` for every sample; may be given again", func(s string) error {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" || value == "" {
			return errors.New("is not name=value")
		}
		tags[name] = value
		return nil
	})
	path, err := parse(flags, args, stderr)
	if err != nil {
		return err
	}
	if c.Sender, err = load(path, config.ParseSender); err != nil {
		return err
	}
	if c.Token, err = handshake.ReadToken(*tokenFile); err != nil {
		return err
	}
	if c.To, err = resolve(ctx, &c, path); err != nil {
		return err
	}

	var files record.Files
	defer func() { err = errors.Join(err, files.Close()) }()
	files.Input("CONFIG", path)
	files.Input("--token-file", *tokenFile)
	c.Opened = files.Begin // until then earlier results stay
	recorder := &live.Recorder{Events: stderr, Debug: c.Sender.Debug, Kinds: *kinds}
	c.Observe = recorder.Observe
	if *events != "" {
		if recorder.Events, err = files.Open("--events", *events); err != nil {
			return err
		}
	}
	if *trace != "" {
		if recorder.Trace, err = files.Open("--trace", *trace); err != nil {
			return err
		}
	}
	if *samples != "" {
		to, err := files.Open("--samples", *samples)
		if err != nil {
			return err
		}
		clock, err := clock.New()
		if err != nil {
			return err
		}
		rows, series := row.NewRows(clock), row.NewSeries("atou", tags)
		recorder.Samples = func(s *live.Sample) error {
			rows.Reset()
			rows.Begin(series)
			record.AddFields(rows, &c.Sender, &s.Stats, s.Busy)
			if s.Final {
				rows.Bool("final", true)
			}
			rows.End(s.Time)
			_, err := to.Write(rows.Bytes())
			return err
		}
		c.Sample = recorder.Sample
	}
	var jsonFile *record.Output
	if *report != "" {
		if jsonFile, err = files.Open("--json", *report); err != nil {
			return err
		}
	}

	runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))) // the thread that sends does not share its own
	recorder.Start()
	sent, failure := live.Send(ctx, c)
	lost, err := recorder.Close()
	if lost > 0 {
		fmt.Fprintf(stderr, "atou send: %d lines of the trace, events and samples are missing: they came faster than they could be written\n", lost)
	}
	if c.Sender.SACK && failure == nil && !sent.Config.SACK {
		fmt.Fprintln(stderr, "atou send: sack 1 has had no effect: the receiver has sack 0")
	}
	if !sent.Started.IsZero() {
		tellBuffer(stderr, "send", "sndbuf", c.Sender.SndBuf, sent.SndBuf, "net.core.wmem_max")
		tellBuffer(stderr, "send", "rcvbuf", c.Sender.RcvBuf, sent.RcvBuf, "net.core.rmem_max")
		host, _ := os.Hostname()
		summary := record.Summary{
			Program: "atou " + version, Started: sent.Started, From: host, To: c.Sender.Host,
			Config: c.Sender, DelAck: sent.Config.DelAck, Stats: sent.Stats, Elapsed: sent.Elapsed,
		}
		_, e := stdout.Write(summary.Append(nil))
		err = errors.Join(err, e)
	}
	if jsonFile != nil {
		encoder := json.NewEncoder(jsonFile)
		encoder.SetIndent("", " ")
		err = errors.Join(err, jsonFile.Begin(), encoder.Encode(newSummary(&c, &sent, lost, failure)))
	}
	return errors.Join(failure, err)
}

// resolve finds the address of the receiver.
func resolve(ctx context.Context, c *live.SendConfig, path string) (netip.AddrPort, error) {
	host, port := c.Sender.Host, uint16(c.Sender.Port)
	if host == "" {
		return netip.AddrPort{}, fmt.Errorf("%s names no host to send to: a line is missing such as host 10.0.0.2", path)
	}
	addresses := []netip.Addr{}
	if a, err := netip.ParseAddr(host); err == nil {
		addresses = append(addresses, a)
	} else if strings.ContainsAny(host, ":[]") {
		return netip.AddrPort{}, fmt.Errorf("host in %s: found %q; allowed is a name or an address without port and brackets: port is a key of its own", path, host)
	} else {
		ctx, cancel := context.WithTimeout(ctx, resolveWait)
		defer cancel()
		if addresses, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
			return netip.AddrPort{}, fmt.Errorf("host in %s: %w", path, err)
		}
	}
	for _, a := range addresses {
		if a = a.Unmap(); !c.Bind.IsValid() || a.Is4() == c.Bind.Addr().Is4() {
			return netip.AddrPortFrom(a, port), nil
		}
	}
	return netip.AddrPort{}, fmt.Errorf("host %s has the addresses %v, none of the family of --bind %v", host, addresses, c.Bind.Addr())
}

// summary is what --json writes.
type summary struct {
	Version       string  `json:"version"`
	Mode          string  `json:"mode"`
	To            string  `json:"to"`
	Error         string  `json:"error,omitempty"`
	StartedUnixNs int64   `json:"started_unix_ns,omitempty"`
	ElapsedNs     int64   `json:"elapsed_ns"`
	Config        string  `json:"config"`
	GoodBytes     uint64  `json:"good_bytes"`
	GoodputBps    float64 `json:"goodput_bps"`
	record.SenderCounts
	BusyNs        int64                  `json:"busy_ns"`
	CPUNs         int64                  `json:"cpu_ns"`
	LostLines     uint64                 `json:"lost_lines"`
	Path          live.PathCounts        `json:"path"`
	Late          *lateness              `json:"departures,omitempty"`
	ReceiverStats *record.ReceiverCounts `json:"receiver,omitempty"` // absent: it did not report
	ReceiverText  string                 `json:"receiver_config,omitempty"`
}

// lateness is by how much segments that waited for their time left after it,
// as their system call began.
type lateness struct {
	N     int64 `json:"segments"`
	P5Ns  int64 `json:"late_p5_ns"`
	P50Ns int64 `json:"late_p50_ns"`
	P95Ns int64 `json:"late_p95_ns"`
	P99Ns int64 `json:"late_p99_ns"`
	MaxNs int64 `json:"late_max_ns"`
}

func newSummary(c *live.SendConfig, sent *live.Sent, lost uint64, failure error) summary {
	text, _ := c.Sender.AppendText(nil)
	good := sent.Stats.Una * uint64(c.Sender.MSS)
	s := summary{
		Version: version, Mode: c.Mode.String(), To: c.To.String(), Config: string(text), LostLines: lost,
		ElapsedNs: sent.Elapsed.Nanoseconds(), GoodBytes: good, GoodputBps: bps(good, sent.Elapsed),
		SenderCounts: record.CountSender(&sent.Stats),
		BusyNs:       sent.Busy.Nanoseconds(), CPUNs: sent.CPU.Nanoseconds(), Path: sent.Path,
	}
	if failure != nil {
		s.Error = failure.Error()
	}
	if !sent.Started.IsZero() {
		s.StartedUnixNs = sent.Started.UnixNano()
	}
	if late := sent.Late; late != nil && late.TotalCount() > 0 {
		at := func(q float64) int64 { return late.ValueAtQuantile(q) }
		s.Late = &lateness{late.TotalCount(), at(5), at(50), at(95), at(99), late.Max()}
	}
	if sent.Reported {
		stats := record.CountReceiver(&sent.Receiver)
		text, _ := sent.Config.AppendText(nil)
		s.ReceiverStats, s.ReceiverText = &stats, string(text)
	}
	return s
}
