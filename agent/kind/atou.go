package kind

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

	"dumbbell/agent/gate"
	"dumbbell/agent/phase"
	"dumbbell/agent/plan"
	"dumbbell/collectors/pace"
	"dumbbell/collectors/row"
	"dumbbell/collectors/tcpinfo"
	"dumbbell/transports/atou/config"
	"dumbbell/transports/atou/proto"
	"dumbbell/transports/atou/record"

	"github.com/influxdata/line-protocol/v2/lineprotocol"
)

// Transfers of atou, a TCP over UDP: a program at each end.

func init() {
	addKind(Kind{
		Name: "atou", Program: "atou", Protocol: tcpinfo.UDP, Sampling: BySender, Check: checkAtou, End: removeToken,
		Foreign: func(f *plan.Flow, require plan.Require) {
			require(f.Sender == nil && f.Receiver == nil && f.Mode == "" && !f.Trace, "", "sender, receiver, mode and trace belong to a flow of atou")
		},
	})
	addTask(Task{Kind: "atou_serve", Role: Server, Serves: true, Prepare: writeAtou, Command: atouServe, Run: runAtouServer})
	addTask(Task{Kind: "atou_send", Role: Client, Lead: clientLead, Ahead: LaunchLead, Prepare: writeAtou, Command: atouSend, Run: runAtou})
}

func checkAtou(f *plan.Flow, require plan.Require) {
	requireOneStream(f, require, "a flow of atou")
	require(f.CongestionControl == nil, ".congestion_control", "a UDP flow has none")
	require(f.Mode == "precise" || f.Mode == "bulk", ".mode", "%q is neither precise nor bulk", f.Mode)
	sender, err := atouSender(f)
	require(err == nil, ".sender", "%v", err)
	receiver, err := atouReceiver(f)
	require(err == nil, ".receiver", "%v", err)
	require(err != nil || !sender.SACK || receiver.SACK, ".receiver", "sack 1 of the sender needs sack 1 of the receiver, which has sack 0")
}

// atouDrain is how long a receiver stays after the end of the phase: a sender
// asks it for its report for 5 s, or longer if its RTTs are, but no longer than
// all processes have.
const atouDrain = phase.GracePeriod - time.Second

// atouSamples is the file in which the sender of atou finds the pipe for its samples.
const atouSamples = "/proc/self/fd/3"

// atouSender is the whole configuration of the flow's sender.
func atouSender(f *plan.Flow) (config.Sender, error) {
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
func atouReceiver(f *plan.Flow) (config.Receiver, error) {
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
func atouFile(f *plan.Flow, what string) string { return "atou-" + f.Name + "-" + what }

// TokenFile is the secret that both ends share: of the whole run, above its
// phases, so that it stays on the host.
func TokenFile(dir string) string { return filepath.Join(dir, "..", "atou.token") }

func atouServe(p *plan.Plan, a plan.Action, _ time.Time) phase.Command {
	f := p.Flow(a.Flow)
	return phase.Command{
		Args:   []string{"atou", "serve", "--token-file", TokenFile("."), "--listen", f.Dst.String(), atouFile(f, "receiver.conf")},
		Output: atouFile(f, "receiver.json"),
	}
}

func atouSend(p *plan.Plan, a plan.Action, t0 time.Time) phase.Command {
	f := p.Flow(a.Flow)
	args := []string{"atou", "send", "--token-file", TokenFile("."), "--mode", f.Mode, "--bind", f.Tuple(0).Local.String(),
		"--events", atouFile(f, "events.txt"), "--samples", atouSamples, "--interval", p.SamplingInterval.String(), "--json", atouFile(f, "sender.json"),
		"--start", strconv.FormatInt(t0.Add(a.At).UnixNano(), 10)}
	if f.Trace {
		args = append(args, "--trace", atouFile(f, "trace.txt"))
	}
	return phase.Command{Args: append(args, atouFile(f, "sender.conf")), Output: atouFile(f, "summary.txt")}
}

// writeAtou writes the configuration of one end, with all keys, and looks for
// the token: what is wrong with them is said before the host is armed.
func writeAtou(_ context.Context, r *phase.Run, a plan.Action) error {
	f := r.Plan.Flow(a.Flow)
	var text []byte
	name := atouFile(f, "receiver.conf")
	if a.Kind == "atou_serve" {
		c, err := atouReceiver(f)
		if err != nil {
			return err
		}
		text, _ = c.AppendText(nil)
	} else {
		name = atouFile(f, "sender.conf")
		c, err := atouSender(f)
		if err != nil {
			return err
		}
		text, _ = c.AppendText(nil)
	}
	if err := os.WriteFile(filepath.Join(r.Dir, name), text, 0o640); err != nil {
		return fmt.Errorf("writing the configuration of %s: %w", a, err)
	}
	if _, err := os.Stat(TokenFile(r.Dir)); err != nil {
		return fmt.Errorf("%s needs the token of its run: %w", a, err)
	}
	return nil
}

// removeToken removes the token of a run from this host: no phase with such flows follows.
func removeToken(dir string) error {
	if err := os.Remove(TokenFile(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the token of a run: %w", err)
	}
	return nil
}

func runAtouServer(ctx context.Context, r *phase.Run, a plan.Action, started func()) error {
	_, err := runUntil(ctx, r, a, r.Plan.Duration+atouDrain, started)
	return err
}

// runAtou runs the sender of a flow, which opens it ahead of its planned start,
// and then waits for that on its own.
func runAtou(ctx context.Context, r *phase.Run, a plan.Action, _ func()) error {
	flow, planned := r.Plan.Flow(a.Flow), r.T0.Add(a.At)
	p, err := NewProcess(ctx, r, a)
	if err != nil {
		return err
	}
	defer p.Close()
	samples, into, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("preparing %s: %w", a, err)
	}
	defer samples.Close()
	defer into.Close()
	p.Cmd.ExtraFiles = []*os.File{into}
	if pace.SleepUntil(ctx, connectAt(r.T0, flow)) != nil {
		return nil
	}
	if err := p.Start(); err != nil {
		return err
	}
	into.Close() // so that the samples end with the process
	sampled := make(chan error, 1)
	go func() { sampled <- relayAtou(r, flow, samples) }()
	if pace.SleepUntil(ctx, planned.Add(-tapLead)) == nil {
		listenForData(ctx, r, nil, flow, planned, greeting{ // it may be opened while the tap listens
			bytes: config.HeaderBytes - 1, with: []gate.PayloadByte{{At: proto.TypeAt, Value: byte(proto.TypeData)}},
		})()
	}
	return errors.Join(p.Wait(), <-sampled)
}

// relayAtou writes to the spool, as rows of tcp_info, what the sender of a flow
// tells of itself in the same names and units.
func relayAtou(r *phase.Run, f *plan.Flow, samples io.Reader) error {
	series := row.NewSeries("tcp_info", r.Plan.Tags().With("flow", f.Name, "side", "sender", "stream", "0"))
	lines := bufio.NewScanner(samples)
	var failure error
	for lines.Scan() {
		err := r.Rows.Add(func(rows *row.Rows) error { return relayAtouLine(r, series, lines.Bytes(), rows) })
		err = errors.Join(err, r.Rows.FlushDue(r.Plan.SamplingInterval))
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
func relayAtouLine(r *phase.Run, series row.Series, line []byte, rows *row.Rows) error {
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
	rows.End(r.Clock.At(at.UnixNano()))
	return nil
}
