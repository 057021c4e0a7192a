// Package simulate is the command `atou simulate`: a transfer over an emulated
// path in virtual time, asked for and answered in JSON.
package simulate

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"dumbbell/transports/atou/config"
	"dumbbell/transports/atou/proto"
	"dumbbell/transports/atou/record"
	"dumbbell/transports/atou/sim"
)

const usage = `usage: atou simulate [--trace FILE] [REQUEST]

Simulates the transfer that REQUEST, or standard input, asks for in JSON: keys of both ends' configurations, and the path.

  {"sender": {"rcvrwin": 2000, "vegas": 1}, "receiver": {"sack": 1},
   "forward": {"rate_bps": 100000000, "delay_ns": 35000000, "queue": 500}, "back": {"delay_ns": 35000000},
   "seed": 1, "interval_ns": 100000000}

Keys of forward (for segments) and back (for ACKs), all 0 or empty by default:
  rate_bps delay_ns queue          link with a drop-tail queue of so many packets; 0: infinite
  mtu                              bytes of a packet; 0: 1500
  police_bps police_burst          rate beyond which datagrams are dropped, and bytes that may exceed it at once
  loss drop                        share of packets lost at random; numbers of datagrams to lose, from 0
  reorder displace_min displace    share of datagrams that others overtake, and how many
  cluster hold_ns                  datagrams overtaken together; how long one waits for others
  duplicate                        share of datagrams that arrive twice
With "untrimmed": true, ACKs have room for all SACK blocks. Keys of the ends are those of their configurations.

The answer on standard output is JSON too: counts, and samples of the sender by column. Events go to standard error.
`

// A Request is what is to be simulated.
type Request struct {
	Sender    map[string]any `json:"sender"` // keys of the configuration, in its units
	Receiver  map[string]any `json:"receiver"`
	Forward   sim.Path       `json:"forward"` // of segments
	Back      sim.Path       `json:"back"`    // of ACKs
	Untrimmed bool           `json:"untrimmed"`
	Seed      uint64         `json:"seed"`
	Interval  time.Duration  `json:"interval_ns"` // between samples; 0: none
}

// An Answer is what came of it.
type Answer struct {
	Elapsed    time.Duration         `json:"elapsed_ns"`
	GoodputBps float64               `json:"goodput_bps"` // acknowledged payload
	Sender     record.SenderCounts   `json:"sender"`
	Receiver   record.ReceiverCounts `json:"receiver"`
	Forward    sim.PathStats         `json:"forward"`
	Back       sim.PathStats         `json:"back"`
	Samples    *Samples              `json:"samples,omitempty"`
}

// Samples are columns of one length, by the names of tcp_info where it has them.
type Samples struct {
	T            []int64  `json:"t_ns"`
	BytesAcked   []uint64 `json:"bytes_acked"`
	SndCwnd      []int    `json:"snd_cwnd"`
	SndSsthresh  []*int   `json:"snd_ssthresh"` // null while it is infinite
	SRTT         []int64  `json:"srtt_us"`
	MinRTT       []int64  `json:"min_rtt_us"`
	RTT          []int64  `json:"rtt_us"` // of the last ACK
	DataSegsOut  []uint64 `json:"data_segs_out"`
	TotalRetrans []uint64 `json:"total_retrans"`
	Dup3s        []uint64 `json:"dup3s"`
	Timeouts     []uint64 `json:"total_rto"`
	Queue        []int    `json:"queue_packets"` // of the forward path
}

func (s *Samples) add(at time.Duration, st *proto.Stats, mss int, rtt time.Duration, queue int) {
	s.T = append(s.T, int64(at))
	s.BytesAcked = append(s.BytesAcked, st.Una*uint64(mss))
	s.SndCwnd = append(s.SndCwnd, st.Cwnd)
	var ssthresh *int
	if st.Ssthresh != proto.InfiniteSsthresh {
		ssthresh = &st.Ssthresh
	}
	s.SndSsthresh = append(s.SndSsthresh, ssthresh)
	s.SRTT = append(s.SRTT, st.SRTT.Microseconds())
	s.MinRTT = append(s.MinRTT, st.MinRTT.Microseconds())
	s.RTT = append(s.RTT, rtt.Microseconds())
	s.DataSegsOut = append(s.DataSegsOut, st.Out)
	s.TotalRetrans = append(s.TotalRetrans, st.Rxmts)
	s.Dup3s = append(s.Dup3s, st.Dup3s)
	s.Timeouts = append(s.Timeouts, st.Timeouts)
	s.Queue = append(s.Queue, queue)
}

// Main is the command. It returns the exit status: 2 for wrong usage, 1 for
// anything else that is wrong.
func Main(args []string, in io.Reader, out, errs io.Writer) int {
	flags := flag.NewFlagSet("simulate", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.Usage = func() { fmt.Fprint(errs, usage); flags.PrintDefaults() }
	traceFile := flags.String("trace", "", "write a line for each segment and ACK to `FILE`")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if flags.NArg() > 1 {
		flags.Usage()
		return 2
	}
	if err := run(flags.Arg(0), *traceFile, in, out, errs); err != nil {
		fmt.Fprintf(errs, "atou simulate: %v\n", err)
		return 1
	}
	return 0
}

func run(request, traceFile string, in io.Reader, out, errs io.Writer) (err error) {
	name, path := "standard input", "/dev/stdin"
	if request != "" {
		f, err := os.Open(request)
		if err != nil {
			return err
		}
		defer f.Close()
		in, name, path = f, request, request
	}
	asked, err := ReadRequest(in)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	events := bufio.NewWriter(errs)
	defer func() { err = errors.Join(err, events.Flush()) }()
	trace := bufio.NewWriter(io.Discard)
	if traceFile != "" {
		var (
			files record.Files
			f     *record.Output
		)
		files.Input("REQUEST", path)
		if f, err = files.Open("--trace", traceFile); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, trace.Flush(), files.Close()) }()
		if err = f.Begin(); err != nil {
			return err
		}
		trace.Reset(f)
	}
	answer, err := Run(asked, events, trace)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return json.NewEncoder(out).Encode(answer)
}

// ReadRequest reads one request, and nothing that it does not know.
func ReadRequest(r io.Reader) (Request, error) {
	var (
		asked Request
		whole json.RawMessage
	)
	d := json.NewDecoder(r)
	if err := d.Decode(&whole); err == io.EOF {
		return asked, errors.New("empty; a request is a JSON object, such as --help shows")
	} else if err != nil {
		return asked, err
	}
	if whole[0] != '{' {
		return asked, fmt.Errorf("found %s; a request is a JSON object, such as --help shows", whole)
	}
	if _, err := d.Token(); err != io.EOF {
		return asked, errors.New("more than one JSON value")
	}
	if err := decode("", whole, reflect.ValueOf(&asked).Elem()); err != nil {
		return asked, err
	}
	return asked, asked.check()
}

func (asked *Request) check() error {
	sender, _, err := asked.ends()
	err = errors.Join(err, check("forward", &asked.Forward), check("back", &asked.Back))
	if asked.Interval < 0 {
		err = errors.Join(err, fmt.Errorf("interval_ns: found %d; allowed is 0 and more", asked.Interval))
	}
	if err != nil {
		return err
	}
	forward, back := &asked.Forward, &asked.Back
	switch {
	case forward.Delay+back.Delay == 0 && forward.RateBps+back.RateBps == 0 && sender.Gap == 0:
		return errors.New("forward and back have neither delay_ns nor rate_bps: no time would pass")
	case max(forward.Loss, back.Loss) == 1 && sender.MaxTime == 0:
		return errors.New("forward or back has loss 1, and sender maxtime 0: the transfer would have no end")
	}
	return nil
}

// ends are the configurations of both.
func (asked *Request) ends() (sender config.Sender, receiver config.Receiver, err error) {
	sender, err = config.SenderOf(values(asked.Sender), "sender")
	receiver, e := config.ReceiverOf(values(asked.Receiver), "receiver")
	return sender, receiver, errors.Join(err, e)
}

func check(name string, p *sim.Path) error {
	var problems []error
	require := func(ok bool, key, allowed string, found any) {
		if !ok {
			problems = append(problems, fmt.Errorf("%s.%s: found %v; allowed is %s", name, key, found, allowed))
		}
	}
	for _, share := range []struct {
		key string
		of  float64
	}{{"loss", p.Loss}, {"reorder", p.Reorder}, {"duplicate", p.Duplicate}} {
		require(share.of >= 0 && share.of <= 1, share.key, "0 to 1", share.of)
	}
	require(p.RateBps >= 0 && p.RateBps <= 1e13, "rate_bps", "0 to 10^13", p.RateBps)
	require(p.Delay >= 0 && p.Delay <= time.Hour, "delay_ns", "0 to an hour", int64(p.Delay))
	require(p.Queue >= 0, "queue", "0 and more", p.Queue)
	require(p.MTU == 0 || p.MTU >= 68, "mtu", "68 and more", p.MTU) // RFC 791
	require(p.PoliceBps >= 0 && (p.PoliceBps == 0 || p.PoliceBurst > 0), "police_burst", "a positive number where there is a police_bps", p.PoliceBurst)
	require(p.Displace >= 0 && p.Displace <= 1<<16, "displace", "0 to 65536", p.Displace)
	require(p.DisplaceMin >= 0 && p.DisplaceMin <= p.Displace, "displace_min", "0 to displace", p.DisplaceMin)
	require(p.Cluster >= 0, "cluster", "0 and more", p.Cluster)
	require(p.Hold >= 0, "hold_ns", "0 and more", int64(p.Hold))
	require(slices.IsSorted(p.Drop), "drop", "an ascending list", p.Drop)
	return errors.Join(problems...)
}

// Run simulates a transfer. Events go to events as the sender's debug level
// has them, a line for each segment and ACK to trace.
func Run(asked Request, events, trace io.Writer) (*Answer, error) {
	sender, receiver, err := asked.ends()
	if err != nil {
		return nil, err
	}
	var (
		answer Answer
		line   []byte
		rtt    time.Duration
	)
	c := sim.Config{
		Sender: sender, Receiver: receiver, Forward: asked.Forward, Back: asked.Back, Untrimmed: asked.Untrimmed, Seed: asked.Seed,
		Observe: func(e *proto.Event) {
			if e.Kind == proto.AckIn {
				rtt = e.RTT
			}
			if line = record.AppendEvent(line[:0], e, sender.Debug, true); len(line) > 0 {
				events.Write(line)
			}
			if line = record.AppendTrace(line[:0], e, true); len(line) > 0 {
				trace.Write(line)
			}
		},
	}
	if asked.Interval > 0 {
		answer.Samples = new(Samples)
		c.Interval = asked.Interval
		c.Sample = func(at time.Duration, st proto.Stats, queue int) { answer.Samples.add(at, &st, sender.MSS, rtt, queue) }
	}
	r, err := sim.Run(c)
	if err != nil {
		return nil, err
	}
	answer.Elapsed, answer.GoodputBps = r.Elapsed, r.GoodputBps(sender.MSS)
	answer.Forward, answer.Back = r.Forward, r.Back
	answer.Sender, answer.Receiver = record.CountSender(&r.Sender), record.CountReceiver(&r.Receiver)
	return &answer, nil
}

// values are as a configuration has them. What is wrong with one is for the
// configuration to say.
func values(keys map[string]any) map[string]string {
	all := map[string]string{}
	for key, value := range keys {
		list, ok := value.([]any)
		if !ok {
			list = []any{value}
		}
		words := []string{}
		for _, v := range list {
			words = append(words, fmt.Sprint(v))
		}
		all[key] = strings.Join(words, ",")
	}
	return all
}
