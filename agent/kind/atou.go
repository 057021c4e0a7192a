package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"dumbbell/collectors/sample"
	"dumbbell/collectors/spool"
	"dumbbell/transports/atou/config"
	"dumbbell/transports/atou/record"

	"github.com/influxdata/line-protocol/v2/lineprotocol"
)

// Atou is what a flow of atou has beside what all have: what its ends are
// asked, as lines of their configurations.
type Atou struct {
	Sender   map[string]string `json:"sender,omitempty"`
	Receiver map[string]string `json:"receiver,omitempty"`
	Mode     string            `json:"mode,omitempty"`  // precise or bulk
	Trace    bool              `json:"trace,omitempty"` // of each segment and each ACK
}

// empty tells a flow that is not of atou.
func (a Atou) empty() bool { return a.Sender == nil && a.Receiver == nil && a.Mode == "" && !a.Trace }

// atouDrain is how long a receiver stays after the end of the phase: a sender
// asks it for its report for 5 s, or longer if its RTTs are, but no longer than
// all processes have.
const atouDrain = gracePeriod - time.Second

// atouSamples is the file in which the sender of atou finds the pipe for its samples.
const atouSamples = "/proc/self/fd/3"

// atouSender is the whole configuration of the flow's sender.
func (f *Flow) atouSender() (config.Sender, error) {
	debug := record.DebugBadAcks // all events
	if f.Trace {
		debug = record.DebugTrace
	}
	text, err := configuration(f.Sender, map[string]string{
		"host":    f.Dst.String(),
		"port":    strconv.Itoa(int(f.ServerPort)),
		"maxtime": strconv.FormatFloat(f.Duration.Seconds(), 'f', -1, 64),
		"debug":   strconv.Itoa(debug),
	})
	if err != nil {
		return config.Sender{}, err
	}
	return config.ParseSender(text, f.Name+".sender")
}

// atouReceiver is that of its receiver.
func (f *Flow) atouReceiver() (config.Receiver, error) {
	text, err := configuration(f.Receiver, map[string]string{"port": strconv.Itoa(int(f.ServerPort))})
	if err != nil {
		return config.Receiver{}, err
	}
	return config.ParseReceiver(text, f.Name+".receiver")
}

// word is what may stand in a line: no other line can hide in it.
var word = regexp.MustCompile(`^[0-9A-Za-z_.:,+-]+$`)

func configuration(asked, planned map[string]string) (io.Reader, error) {
	var b strings.Builder
	for _, keys := range []map[string]string{planned, asked} {
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if !word.MatchString(key) || !word.MatchString(keys[key]) {
				return nil, fmt.Errorf("%q: %q is no word and its value", key, keys[key])
			}
			fmt.Fprintf(&b, "%s %s\n", key, keys[key])
		}
	}
	return strings.NewReader(b.String()), nil
}

// atouFile is the name of a file that one end of a flow leaves.
func (f *Flow) atouFile(what string) string { return "atou-" + f.Name + "-" + what }

// atouToken is the secret that both ends share: of the whole run, above its phases, so that it stays on the host.
func atouToken(dir string) string { return filepath.Join(dir, "..", "atou.token") }

// atouCommand is the command of one end, and the file its output goes to. It
// is started in its run directory.
func atouCommand(p *Plan, a Action, t0 time.Time) (args []string, output string) {
	f := p.Flow(a.Flow)
	if a.Kind == "atou_serve" {
		return []string{"atou", "serve", "--token-file", atouToken("."), "--listen", f.Dst.String(), f.atouFile("receiver.conf")},
			f.atouFile("receiver.json")
	}
	args = []string{"atou", "send", "--token-file", atouToken("."), "--mode", f.Mode, "--bind", f.Tuple(0).Local.String(),
		"--events", f.atouFile("events.txt"), "--samples", atouSamples, "--interval", p.SamplingInterval.String(), "--json", f.atouFile("sender.json"),
		"--start", strconv.FormatInt(t0.Add(a.At).UnixNano(), 10)}
	if f.Trace {
		args = append(args, "--trace", f.atouFile("trace.txt"))
	}
	return append(args, f.atouFile("sender.conf")), f.atouFile("summary.txt")
}

// writeAtou writes the configuration of one end, with all keys, and looks for
// the token: what is wrong with them is said before the host is armed.
func (r *run) writeAtou(a Action) error {
	f := r.plan.Flow(a.Flow)
	var text []byte
	name := f.atouFile("receiver.conf")
	if a.Kind == "atou_serve" {
		c, err := f.atouReceiver()
		if err != nil {
			return err
		}
		text, _ = c.AppendText(nil)
	} else {
		name = f.atouFile("sender.conf")
		c, err := f.atouSender()
		if err != nil {
			return err
		}
		text, _ = c.AppendText(nil)
	}
	if err := os.WriteFile(filepath.Join(r.dir, name), text, 0o640); err != nil {
		return fmt.Errorf("writing the configuration of %s: %w", a, err)
	}
	if _, err := os.Stat(atouToken(r.dir)); err != nil {
		return fmt.Errorf("%s needs the token of its run: %w", a, err)
	}
	return nil
}

// forgetToken removes the token of a run from this host once the flows that
// need it are over: no phase with such flows follows.
func (r *run) forgetToken() error {
	if slices.ContainsFunc(r.plan.Flows, func(f Flow) bool { return f.Kind == "atou" }) {
		return removeToken(r.dir)
	}
	return nil
}

func removeToken(dir string) error {
	if err := os.Remove(atouToken(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the token of a run: %w", err)
	}
	return nil
}

// runAtou runs the sender of a flow, which opens it ahead of its planned start,
// and then waits for that on its own.
func (r *run) runAtou(ctx context.Context, a Action, rows *spool.Writer) error {
	flow, planned := r.plan.Flow(a.Flow), r.t0.Add(a.At)
	p, err := r.newProcess(ctx, a)
	if err != nil {
		return err
	}
	defer p.close()
	samples, into, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("preparing %s: %w", a, err)
	}
	defer samples.Close()
	defer into.Close()
	p.cmd.ExtraFiles = []*os.File{into}
	if sleepUntil(ctx, r.connectAt(flow)) != nil {
		return nil
	}
	if err := p.start(); err != nil {
		return err
	}
	into.Close() // so that the samples end with the process
	sampled := make(chan error, 1)
	go func() { sampled <- r.relayAtou(flow, samples, rows) }()
	if sleepUntil(ctx, planned.Add(-tapLead)) == nil {
		r.listenForData(ctx, nil, flow, planned)()
	}
	return errors.Join(p.wait(), <-sampled)
}

// relayAtou writes to the spool, as rows of tcp_info, what the sender of a flow
// tells of itself in the same names and units.
func (r *run) relayAtou(f *Flow, samples io.Reader, rows *spool.Writer) error {
	series := sample.NewSeries("tcp_info", r.plan.Tags().With("flow", f.Name, "side", "sender", "stream", "0"))
	lines := bufio.NewScanner(samples)
	var failure error
	for lines.Scan() {
		err := rows.Add(func(rows *sample.Rows) error { return r.relayAtouLine(series, lines.Bytes(), rows) })
		err = errors.Join(err, rows.FlushDue(r.plan.SamplingInterval))
		if failure == nil && err != nil {
			failure = fmt.Errorf("sampling %s: %w", f.Name, err)
		}
	}
	if err := lines.Err(); err != nil && failure == nil {
		failure = fmt.Errorf("sampling %s: %w", f.Name, err)
	}
	io.Copy(io.Discard, samples) // a pipe that nobody reads would stop the sender
	return failure
}

// relayAtouLine copies the fields of one line, whose numbers are integers as
// those of tcp_info. Nothing is written unless all of the line is understood.
func (r *run) relayAtouLine(series sample.Series, line []byte, rows *sample.Rows) error {
	d := lineprotocol.NewDecoderWithBytes(line)
	if !d.Next() {
		return nil // empty, or a comment
	}
	type field struct {
		name  string
		value int64
	}
	var (
		fields []field
		final  bool
	)
	_, err := d.Measurement()
	for err == nil {
		var key []byte
		if key, _, err = d.NextTag(); key == nil {
			break
		}
	}
	for err == nil {
		var key []byte
		var value lineprotocol.Value
		if key, value, err = d.NextField(); key == nil || err != nil {
			break
		}
		switch name := string(key); {
		case name == "mono_ns": // this row gets its own
		case name == "final" && value.Kind() == lineprotocol.Bool:
			final = value.BoolV()
		case value.Kind() == lineprotocol.Int:
			fields = append(fields, field{name, value.IntV()})
		default:
			err = fmt.Errorf("%s is no integer", name)
		}
	}
	if err != nil {
		return fmt.Errorf("reading %q: %w", line, err)
	}
	at, err := d.Time(lineprotocol.Nanosecond, time.Time{})
	if err == nil && at.IsZero() {
		err = errors.New("it has no time")
	}
	if err != nil {
		return fmt.Errorf("reading %q: %w", line, err)
	}
	rows.Begin(series)
	for _, f := range fields {
		rows.Int(f.name, f.value)
	}
	rows.String("congestion_control", "atou")
	if final {
		rows.Bool("final", true)
	}
	rows.End(r.clock.At(at.UnixNano()))
	return nil
}
