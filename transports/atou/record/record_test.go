package record

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"dumbbell/transports/atou/config"
	"dumbbell/transports/atou/proto"
)

func golden(t *testing.T, name string) []string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.SplitAfter(strings.TrimSuffix(string(b), "\n"), "\n")
}

// parseEvent reads a line of the original's events by the names in it, knowing
// nothing of how they are printed.
func parseEvent(line string) (e proto.Event, timed bool, err error) {
	words := strings.Fields(line)
	kind, words := words[0], words[1:]
	kinds := map[string]proto.Kind{
		"3duprxmit": proto.DupRxmit, "packrxmit": proto.PackRxmit, "timerxmit": proto.TimerRxmit, "badack": proto.BadAck,
	}
	var ok bool
	if e.Kind, ok = kinds[kind]; !ok {
		return e, false, fmt.Errorf("%q", kind)
	}
	if len(words)%2 == 1 { // a time, or what was acknowledged
		if e.Kind == proto.BadAck {
			e.Seg, err = strconv.ParseUint(words[0], 10, 64)
		} else {
			var s float64
			s, err = strconv.ParseFloat(words[0], 64)
			e.At, timed = time.Duration(s*1e9), true
		}
		if err != nil {
			return e, false, err
		}
		words = words[1:]
	}
	for i := 0; i < len(words); i += 2 {
		v, err := strconv.ParseUint(words[i+1], 10, 64)
		if err != nil {
			return e, false, err
		}
		switch strings.TrimPrefix(words[i], "snd_") {
		case "pkt":
			e.Seg = v
		case "nxt":
			e.Nxt = v
		case "max":
			e.Max = v
		case "una":
			e.Una = v
		case "cwnd":
			e.Cwnd = int(v)
		case "thresh":
			e.Ssthresh = int(v)
		case "recover":
			e.Recover = v
		default:
			return e, false, fmt.Errorf("%q", words[i])
		}
	}
	return e, timed, nil
}

func TestEventsRoundTrip(t *testing.T) {
	for _, line := range golden(t, "events.txt") {
		e, timed, err := parseEvent(line)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if got := string(AppendEvent(nil, &e, 4, timed)); strings.TrimSuffix(got, "\n") != strings.TrimSuffix(line, "\n") {
			t.Errorf("%q becomes %q", line, got)
		}
	}
}

func parseTrace(line string) (e proto.Event, err error) {
	words := strings.Fields(line)
	at, err := strconv.ParseFloat(words[0], 64)
	if err != nil {
		return e, err
	}
	e.At = time.Duration(at*1e9 + 0.5)
	if words[len(words)-1] == "ack" {
		var rtt float64
		e.Kind = proto.AckIn
		_, err = fmt.Sscan(strings.Join(words[1:5], " "), &e.Seg, &rtt, &e.Cwnd, &e.Ssthresh)
		e.RTT = time.Duration(rtt*1e9 + 0.5)
		return e, err
	}
	_, err = fmt.Sscan(words[1], &e.Seg)
	return e, err
}

func TestTraceRoundTrip(t *testing.T) {
	for _, line := range golden(t, "trace.txt") {
		e, err := parseTrace(line)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if got := string(AppendTrace(nil, &e, false)); strings.TrimSuffix(got, "\n") != strings.TrimSuffix(line, "\n") {
			t.Errorf("%q becomes %q", line, got)
		}
	}
}

func TestKindsAndLevels(t *testing.T) {
	for _, c := range []struct {
		kind         proto.Kind
		plain, kinds string
		debug        int // least level of its event; 0: none
	}{
		{proto.Xmt, "0.000000 1 xmt\n", "0.000000 1 xmt\n", 0},
		{proto.Rxt, "0.000000 1 xmt\n", "0.000000 1 rxt\n", 0},
		{proto.Drop, "0.000000 1 xmt\n", "0.000000 1 drop\n", 0},
		{proto.TimerRxmit, "", "", 1},
		{proto.DupRxmit, "", "", 2},
		{proto.PackRxmit, "", "", 2},
		{proto.BadAck, "", "", 3},
	} {
		e := &proto.Event{Kind: c.kind, Seg: 1}
		if got := string(AppendTrace(nil, e, false)); got != c.plain {
			t.Errorf("%q, want %q", got, c.plain)
		}
		if got := string(AppendTrace(nil, e, true)); got != c.kinds {
			t.Errorf("%q, want %q", got, c.kinds)
		}
		for debug := range 5 {
			if got := len(AppendEvent(nil, e, debug, false)) > 0; got != (c.debug > 0 && debug >= c.debug) {
				t.Errorf("event %d is printed at debug %d: %v", c.kind, debug, got)
			}
		}
	}
}

// TestSummary prints the original's summary from its counters. What is printed
// of them is rounded; the digits beyond are chosen to give what it derived.
func TestSummary(t *testing.T) {
	started, err := time.Parse(time.ANSIC, "Tue May 22 05:18:54 2001")
	if err != nil {
		t.Fatal(err)
	}
	c := config.DefaultSender()
	c.Debug, c.MaxPkts = 4, 12000
	rtts := uint64(11542)
	s := Summary{
		Program: "portcli $Revision: 1.29 $", Started: started, From: "swift", To: "stingray.ccs.ornl.gov",
		Config: c, Elapsed: 3609110951,
		Stats: proto.Stats{
			In: rtts, Out: 11999, MaxAck: 24, MaxBurst: 300,
			RTTs: rtts, SumRTT: int64(rtts) * 77747248 / 1000, MinRTT: 65249 * time.Microsecond, MaxRTT: 98987 * time.Microsecond,
			SRTT: 66705100, RTTVar: 122200, Nxt: 12000, Una: 12000, Max: 12000, Cwnd: 300, Ssthresh: 300,
		},
	}
	got := strings.SplitAfter(strings.TrimSuffix(string(s.Append(nil)), "\n"), "\n")
	want := golden(t, "summary.txt")
	if len(got) != len(want) {
		t.Fatalf("%d lines, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("line %d is\n%swant\n%s", i+1, got[i], want[i])
		}
	}
}

func TestSummaryHasPartsOfDelAck(t *testing.T) {
	s := Summary{Config: config.DefaultSender(), DelAck: 700 * time.Microsecond}
	if got := string(s.Append(nil)); !strings.Contains(got, " delack 0.7 ") {
		t.Error(got)
	}
}

func TestSummaryOfNothing(t *testing.T) {
	if got := string((&Summary{Config: config.DefaultSender()}).Append(nil)); strings.Contains(got, "NaN") || strings.Contains(got, "Inf") {
		t.Error(got)
	}
}

// A replay feeds ACKs to a sender and prints its events.
type replay struct {
	sender *proto.Sender
	now    time.Duration
	events []string
}

func newReplay(c config.Sender, times bool) *replay {
	r := &replay{sender: proto.NewSender(c)}
	r.sender.Observe = func(e *proto.Event) {
		if line := AppendEvent(nil, e, 4, times); len(line) > 0 {
			r.events = append(r.events, string(line))
		}
	}
	r.pump()
	return r
}

func (r *replay) pump() {
	for seg, ok := r.sender.Next(r.now); ok; seg, ok = r.sender.Next(r.now) {
		r.sender.Sent(r.now, seg)
	}
}

// ack acknowledges up to cum; n duplicates follow.
func (r *replay) ack(cum uint64, n int) {
	r.sender.Ack(r.now, &proto.Ack{Cum: cum, Seg: cum - 1})
	r.pump()
	for range n {
		r.sender.Ack(r.now, &proto.Ack{Cum: cum, Seg: r.sender.Stats().Max - 1})
		r.pump()
	}
}

// TestNewRenoExcerpt replays the ACKs that the original's excerpt of six losses
// in one window implies: a partial ACK each RTT, after as many duplicates as
// its window opened by. The receiver delayed ACKs: between two partial ACKs,
// every other new segment caused one. 0.6 is the multiplier that makes 73 of
// 123.
func TestNewRenoExcerpt(t *testing.T) {
	c := config.DefaultSender()
	c.RcvrWin, c.InitSegs, c.Multiplier, c.ThreshInit = 300, 103, 0.6, 179.5/300
	c.MaxTime, c.MaxPkts = 0, 1<<40
	r := newReplay(c, true)
	// Twenty ACKs bring cwnd to 123. Before una is 2210 there has been no loss
	// here; in the excerpt there was one, which ended at 1979.
	r.ack(63, 0)
	for range 19 {
		r.ack(min(r.sender.Stats().Max, 2210), 0)
	}
	r.now = 2220 * time.Millisecond
	r.ack(2210, 3+59)
	for _, step := range []struct {
		cum  uint64
		dups int
	}{{2225, 5}, {2227, 3}, {2230, 2}, {2234, 2}, {2237, 0}} {
		r.now += 95 * time.Millisecond
		r.ack(step.cum, step.dups)
	}
	want := golden(t, "events.txt")[7:13]
	want[0] = strings.Replace(want[0], "recover 1979", "recover 0", 1)
	if len(r.events) != len(want) {
		t.Fatalf("%d events: %v", len(r.events), r.events)
	}
	for i := range want {
		if r.events[i] != want[i] {
			t.Errorf("event is\n%swant\n%s", r.events[i], want[i])
		}
	}
}

// TestExcerptWithWindowOf100 has the values of the original's other NewReno
// excerpt: no new segment fits into the window, and cwnd inflates no further.
// Its max is one larger in places, for no reason that the excerpt tells.
func TestExcerptWithWindowOf100(t *testing.T) {
	c := config.DefaultSender()
	c.RcvrWin, c.InitSegs, c.MaxTime, c.MaxPkts = 100, 100, 0, 1<<40
	r := newReplay(c, false)
	for una := uint64(44); una <= 2744; una += 100 {
		r.ack(una, 0)
	}
	r.ack(2744, 60)
	r.ack(2747, 0)
	r.ack(2750, 0)
	want := golden(t, "events.txt")[2:5]
	want[1] = strings.Replace(want[1], "max 2845", "max 2844", 1)
	if got := strings.Join(r.events, ""); got != strings.Join(want, "") {
		t.Errorf("events are\n%swant\n%s", got, strings.Join(want, ""))
	}
}

// TestSACKExcerpt has the losses of the original's excerpt with SACK and
// rampdown: what is lost goes again at once, new segments between, all while
// una stands. The original printed cwnd and ssthresh after the reduction there:
// 103 is 0.6 of 173, and 7324 is 173 segments and two of limited transmit on.
func TestSACKExcerpt(t *testing.T) {
	c := config.DefaultSender()
	c.RcvrWin, c.InitSegs, c.Multiplier, c.MaxTime, c.MaxPkts = 300, 173, 0.6, 0, 1<<40
	c.ThreshInit, c.SACK, c.Rampdown = 173./300, true, true
	r := newReplay(c, true)
	for una := uint64(56); una <= 7149; una += 173 {
		r.ack(una, 0)
	}
	r.now = 5850 * time.Millisecond
	receiver := proto.NewReceiver(config.Receiver{SACK: true}, 300)
	for seg := range uint64(7149) {
		receiver.Data(0, &proto.Data{Seg: seg})
	}
	start := len(r.events)
	for seg := uint64(7149); seg < 7324; seg++ {
		if seg == 7149 || seg == 7152 || seg == 7153 || seg == 7155 {
			continue
		}
		receiver.Data(r.now, &proto.Data{Seg: seg})
		var a proto.Ack
		receiver.Ack(&a)
		r.sender.Ack(r.now, &a)
		r.pump()
	}
	got := strings.Join(r.events[start:], "")
	want := "3duprxmit 5.85 pkt 7149 nxt 7324 max 7324 cwnd 173 thresh 173 recover 7323\n" +
		"packrxmit pkt 7152 nxt 7326 max 7326 cwnd 172 thresh 103 recover 7323 una 7149\n" +
		"packrxmit pkt 7153 nxt 7326 max 7326 cwnd 172 thresh 103 recover 7323 una 7149\n" +
		"packrxmit pkt 7155 nxt 7326 max 7326 cwnd 172 thresh 103 recover 7323 una 7149\n"
	if got != want {
		t.Errorf("events are\n%swant\n%s", got, want)
	}
}

// TestTimerAndBadAck prints the values before the reduction.
func TestTimerAndBadAck(t *testing.T) {
	c := config.DefaultSender()
	c.RcvrWin, c.InitSegs, c.Tick = 200, 200, 0
	r := newReplay(c, false)
	r.ack(100, 0)
	r.ack(90, 0)
	r.now, _ = r.sender.Deadline()
	r.sender.Timeout(r.now)
	r.pump()
	want := "badack 90 snd_max 300 snd_nxt 300 snd_una 100\n" +
		"timerxmit pkt 100 snd_nxt 300 snd_max 300 snd_cwnd 200 thresh 200\n"
	if got := strings.Join(r.events, ""); got != want {
		t.Errorf("events are\n%swant\n%s", got, want)
	}
}
