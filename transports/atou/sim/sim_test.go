package sim

import (
	"math"
	"testing"
	"time"

	"dumbbell/transports/atou/config"
	"dumbbell/transports/atou/proto"
)

const ms = time.Millisecond

// transfer is a sender of 10 s and a receiver over a path of so many Mbit/s
// and an RTT, with a queue of so many segments.
func transfer(mbps float64, rtt time.Duration, queue int, window uint64) Config {
	c := Config{
		Sender: config.DefaultSender(), Receiver: config.DefaultReceiver(),
		Forward: Path{RateBps: int64(mbps * 1e6), Delay: rtt / 2, Queue: queue},
		Back:    Path{Delay: rtt / 2},
	}
	c.Sender.RcvrWin = window
	return c
}

func run(t *testing.T, c Config) Result {
	t.Helper()
	r, err := Run(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// within fails unless low <= got <= high.
func within(t *testing.T, what string, got, low, high float64) {
	t.Helper()
	if !(got >= low && got <= high) {
		t.Errorf("%s is %.4g, not within %.4g to %.4g", what, got, low, high)
	} else {
		t.Logf("%s is %.4g", what, got)
	}
}

func mbps(c Config, r Result) float64 { return r.GoodputBps(c.Sender.MSS) / 1e6 }

// ns: 1.6 Mbit/s, RTT 100 ms, delayed ACKs, 60 s; a queue too short for Reno.
// 75 and 100 % in the original.
func TestRenoSawtoothAndVegasSteady(t *testing.T) {
	const link = 1.6 * 1460 / 1488 // Mbit/s of segments
	c := transfer(1.6, 100*ms, 4, 100)
	c.Sender.MaxTime = 60 * time.Second
	c.Receiver.DelAck = 200 * ms
	r := run(t, c)
	within(t, "Reno's share of the link", mbps(c, r)/link, 0.70, 0.85)
	if r.Sender.Dup3s < 10 {
		t.Errorf("Reno lost only %d times", r.Sender.Dup3s)
	}

	c.Sender.Vegas = true
	v := run(t, c)
	within(t, "Vegas's share of the link", mbps(c, v)/link, 0.95, 1)
	within(t, "Vegas's retransmissions", float64(v.Sender.Rxmts), 0, 1)
}

// Vegas keeps alpha to beta segments in the queue.
func TestVegasQueue(t *testing.T) {
	for _, ab := range [][2]int{{1, 3}, {4, 6}, {20, 30}} {
		c := transfer(10, 100*ms, 500, 1000)
		c.Sender.MaxTime = 120 * time.Second
		c.Sender.Vegas, c.Sender.Alpha, c.Sender.Beta = true, ab[0], ab[1]
		c.Sender.VegasRTT = config.RTTMin
		var waiting, n int
		c.Queue = func(now time.Duration, length int) {
			if now > 90*time.Second {
				waiting += length
				n++
			}
		}
		run(t, c)
		within(t, "mean queue", float64(waiting)/float64(n), float64(ab[0])-1, float64(ab[1])+1)
	}
}

// PSC-ORNL: OC12, 77 ms, window 2000, 10 s. 36 and 232 Mbit/s in the original,
// which left slow start at about 120 segments, 0.5 s after the start.
func TestVegasFloyd(t *testing.T) {
	c := transfer(599, 77*ms, 2000, 2000)
	c.Sender.Vegas, c.Sender.HighSpeed, c.Sender.VegasRTT = true, true, config.RTTMax
	var exit proto.Event
	c.Observe = func(e *proto.Event) {
		if exit.At == 0 && e.Kind == proto.AckIn && e.Ssthresh < 2000 {
			exit = *e
		}
	}
	standard := run(t, c)
	within(t, "standard Vegas in Mbit/s", mbps(c, standard), 25, 50)
	within(t, "cwnd at gamma", float64(exit.Cwnd), 100, 140)
	within(t, "time of gamma in s", exit.At.Seconds(), 0.4, 0.6)
	c.Observe = nil
	c.Sender.VegasFloyd = true
	floyd := run(t, c)
	within(t, "with Floyd's slow start in Mbit/s", mbps(c, floyd), 200, 280)
	within(t, "their ratio", mbps(c, floyd)/mbps(c, standard), 4, 12)
}

// A lossy start: standard slow start overflows a queue, limited slow start and
// Vegas with it do not. 198, 219 and 229 Mbit/s in the original.
func TestLossyStart(t *testing.T) {
	c := transfer(250, 77*ms, 300, 1800)
	c.Sender.SACK, c.Receiver.SACK = true, true
	standard := run(t, c)
	c.Sender.Floyd = true
	floyd := run(t, c)
	t.Logf("standard %.1f Mbit/s, %d retransmissions; limited %.1f, %d",
		mbps(c, standard), standard.Sender.Rxmts, mbps(c, floyd), floyd.Sender.Rxmts)
	if floyd.Sender.Rxmts >= standard.Sender.Rxmts/5 || standard.Forward.Overflowed < 100 {
		t.Errorf("limited slow start lost %d, standard %d", floyd.Sender.Rxmts, standard.Sender.Rxmts)
	}
	if mbps(c, floyd) < mbps(c, standard) {
		t.Errorf("limited slow start reaches %.1f Mbit/s, standard %.1f", mbps(c, floyd), mbps(c, standard))
	}
}

// LBNL-ORNL: 80 ms, window 2000, SACK, delayed ACKs, some segments displaced by
// 7. With dup_thresh 3 all retransmissions are needless and arrive as
// duplicates; with 19 there are none. 18 and 218 Mbit/s in the original.
func TestReordering(t *testing.T) {
	c := transfer(599, 80*ms, 4000, 2000)
	c.Sender.SACK, c.Receiver.SACK = true, true
	c.Receiver.DelAck = 200 * ms
	c.Sender.MaxPkts, c.Sender.MaxTime = 20000, 0 // to its end, so that all duplicates are seen
	c.Forward.Reorder, c.Forward.Displace = 0.003, 7
	three := run(t, c)
	if three.Sender.Dup3s < 5 || three.Sender.Rxmts != three.Receiver.Duplicates || three.Receiver.Displacement < 7 {
		t.Errorf("dup_thresh 3: %d events, %d retransmissions, %d duplicates, displacement %d",
			three.Sender.Dup3s, three.Sender.Rxmts, three.Receiver.Duplicates, three.Receiver.Displacement)
	}
	c.Sender.DupThresh = 19
	nineteen := run(t, c)
	if nineteen.Sender.Rxmts != 0 || nineteen.Receiver.Duplicates != 0 || nineteen.Forward.Overtaken == 0 {
		t.Errorf("dup_thresh 19: %d retransmissions, %d duplicates", nineteen.Sender.Rxmts, nineteen.Receiver.Duplicates)
	}
	t.Logf("3: %.1f Mbit/s, %d events, %d retransmissions; 19: %.1f Mbit/s, %d overtaken",
		mbps(c, three), three.Sender.Dup3s, three.Sender.Rxmts, mbps(c, nineteen), nineteen.Forward.Overtaken)
	if mbps(c, nineteen) < 3*mbps(c, three) {
		t.Errorf("%.1f Mbit/s with dup_thresh 19, %.1f with 3", mbps(c, nineteen), mbps(c, three))
	}
}

// Mathis et al. 1997: a window of sqrt(3/2p) segments without delayed ACKs.
func TestMathis(t *testing.T) {
	for _, p := range []float64{0.001, 0.01} {
		c := transfer(0, 100*ms, 0, 10000)
		c.Sender.SACK, c.Receiver.SACK = true, true
		c.Sender.MaxTime, c.Sender.Tick = 300*time.Second, 0
		c.Forward.Loss = p
		r := run(t, c)
		model := 1460 * 8 / 0.1 * math.Sqrt(1.5/p) / 1e6
		within(t, "share of the model's rate", mbps(c, r)/model, 0.75, 1.25)
	}
}

// recovery drops six segments of a full window of 125, as the original's
// excerpt has them, and returns when the last of them went again after the
// first, in RTTs, with the result.
func recovery(t *testing.T, change func(*config.Sender)) (float64, Result) {
	c := transfer(14, 100*ms, 1000, 125)
	c.Receiver.SACK = true
	c.Sender.MaxPkts, c.Sender.MaxTime, c.Sender.InitSegs = 4000, 0, 100
	c.Sender.DropList = []uint64{2210, 2225, 2227, 2230, 2234, 2237}
	change(&c.Sender)
	var begin, end time.Duration
	c.Observe = func(e *proto.Event) {
		switch {
		case e.Kind == proto.DupRxmit && begin == 0:
			begin = e.At
		case e.Kind == proto.Rxt:
			end = e.At
		}
	}
	r := run(t, c)
	return float64(end-begin) / float64(r.Sender.SRTT), r
}

func TestRecovery(t *testing.T) {
	for _, f := range []struct {
		name      string
		change    func(*config.Sender)
		low, high float64 // RTTs
	}{
		{"NewReno", func(c *config.Sender) {}, 4.7, 5.3},
		{"SACK", func(c *config.Sender) { c.SACK = true }, 0.3, 0.6}, // it waits until the pipe is half empty,
		{"FACK", func(c *config.Sender) { c.SACK, c.FACK = true, true }, 0.3, 0.6},
		{"rampdown", func(c *config.Sender) { c.SACK, c.Rampdown = true, true }, 0.1, 0.3},
		{"FACK and rampdown", func(c *config.Sender) { c.SACK, c.FACK, c.Rampdown = true, true, true }, 0.1, 0.3},
	} {
		t.Run(f.name, func(t *testing.T) {
			rtts, r := recovery(t, f.change)
			within(t, "last retransmission in RTTs", rtts, f.low, f.high)
			st := r.Sender
			if st.Dup3s != 1 || st.Packs != 5 || st.Rxmts != 6 || st.Timeouts != 0 || r.Receiver.Duplicates != 0 {
				t.Errorf("%d recoveries, %d and %d retransmissions, %d time-outs, %d duplicates",
					st.Dup3s, st.Packs, st.Rxmts, st.Timeouts, r.Receiver.Duplicates)
			}
		})
	}
	// Reno leaves recovery at the first partial ACK: it does worse than NewReno.
	if _, r := recovery(t, func(c *config.Sender) { c.NewReno = false }); r.Sender.Dup3s+r.Sender.Timeouts < 2 {
		t.Errorf("Reno recovers from six losses with %d events", r.Sender.Dup3s+r.Sender.Timeouts)
	}
}

// Rampdown reaches ssthresh by one segment per two ACKs; without it cwnd falls
// at once.
func TestRampdown(t *testing.T) {
	for _, rampdown := range []bool{false, true} {
		var before int
		var during []int
		c := transfer(100, 100*ms, 1000, 125)
		c.Receiver.SACK = true
		c.Sender.SACK, c.Sender.Rampdown, c.Sender.MaxPkts, c.Sender.DropList = true, rampdown, 3000, []uint64{2000}
		c.Observe = func(e *proto.Event) {
			switch {
			case e.Kind == proto.DupRxmit:
				before = e.Cwnd
			case before > 0 && e.Kind == proto.AckIn && e.Una == 2000:
				during = append(during, e.Cwnd)
			}
		}
		run(t, c)
		for i, w := range during {
			want := before / 2
			if rampdown {
				want = max(want, before-i/2)
			}
			if w != want {
				t.Fatalf("rampdown %v: cwnd is %d at ACK %d of the recovery, want %d of %d", rampdown, w, i, want, before)
			}
		}
		if len(during) < 100 {
			t.Errorf("%d ACKs in the recovery", len(during))
		}
	}
}

// Two losses with and without delayed ACKs: figure 4 of the original.
func TestDelayedAcksAreSlower(t *testing.T) {
	c := transfer(100, 70*ms, 1000, 300)
	c.Sender.DropList = []uint64{5000, 12000}
	at := run(t, c)
	c.Receiver.DelAck = 200 * ms
	delayed := run(t, c)
	within(t, "bandwidth without delayed ACKs, over that with", mbps(c, at)/mbps(c, delayed), 1.02, 1.6)
}

// A window of 250 Mbit/s for 10 s takes some seconds at most.
func BenchmarkTransfer(b *testing.B) {
	c := transfer(250, 77*ms, 1000, 2000)
	c.Sender.SACK, c.Receiver.SACK = true, true
	for b.Loop() {
		if _, err := Run(c); err != nil {
			b.Fatal(err)
		}
	}
}

// TestGap: paced to half of the link, a window far above its queue makes none.
func TestGap(t *testing.T) {
	c := transfer(10, 100*ms, 5, 1000)
	c.Sender.InitSegs, c.Sender.MaxTime = 500, 5*time.Second
	c.Sender.Gap = 2 * 1488 * 8 * time.Microsecond / 10
	var longest int
	c.Queue = func(_ time.Duration, waiting int) { longest = max(longest, waiting) }
	r := run(t, c)
	within(t, "goodput in Mbit/s", mbps(c, r), 4.7, 5)
	if longest > 0 || r.Sender.Rxmts > 0 {
		t.Errorf("%d segments wait in the queue, %d retransmissions", longest, r.Sender.Rxmts)
	}
	c.Sender.Gap = 0
	if run(t, c).Forward.Overflowed == 0 {
		t.Error("without the gap the queue does not overflow either")
	}
}
