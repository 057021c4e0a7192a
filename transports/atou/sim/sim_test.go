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

// A lossy start: standard slow start overflows a queue. Limited slow start does
// not, nor does Vegas with it, at gamma 2 or at 60, which comes to the window
// sooner. 198, 219 and 229 Mbit/s in the original.
func TestLossyStart(t *testing.T) {
	c := transfer(250, 77*ms, 600, 2000)
	c.Sender.SACK, c.Receiver.SACK, c.Sender.HighSpeed = true, true, true
	standard := run(t, c)
	within(t, "standard slow start in Mbit/s", mbps(c, standard), 170, 210)
	if standard.Forward.Overflowed < 100 {
		t.Errorf("standard slow start lost %d segments", standard.Forward.Overflowed)
	}
	quiet := func(name string, change func(*config.Sender)) float64 {
		c := c
		change(&c.Sender)
		r := run(t, c)
		if r.Sender.Rxmts > 0 {
			t.Errorf("%s: %d retransmissions", name, r.Sender.Rxmts)
		}
		return mbps(c, r)
	}
	vegas := func(c *config.Sender, gamma int) {
		c.Vegas, c.VegasFloyd, c.VegasRTT, c.Gamma = true, true, config.RTTMax, gamma
	}
	within(t, "limited slow start", quiet("limited", func(c *config.Sender) { c.Floyd = true }), 195, 230)
	two := quiet("gamma 2", func(c *config.Sender) { vegas(c, 2) })
	sixty := quiet("gamma 60", func(c *config.Sender) { vegas(c, 60) })
	within(t, "gamma 2", two, 200, 225)
	within(t, "gamma 60", sixty, two+5, 235)
}

// ORNL-LBL: 80 ms, window 1500, one loss: Scalable TCP is back within 5 s,
// whatever the window, Reno after 60.
func TestScalableRecovers(t *testing.T) {
	back := func(scalable bool) (after time.Duration) {
		c := transfer(599, 80*ms, 4000, 1500)
		c.Sender.MaxTime, c.Sender.DropList, c.Sender.Scalable = 100*time.Second, []uint64{20000}, scalable
		var lost time.Duration
		c.Observe = func(e *proto.Event) {
			switch {
			case e.Kind == proto.DupRxmit:
				lost = e.At
			case e.Kind == proto.AckIn && after == 0 && e.Una > 22000 && e.Cwnd == 1500: // beyond the recovery
				after = e.At - lost
			}
		}
		run(t, c)
		return after
	}
	within(t, "Reno's return in s", back(false).Seconds(), 0.9*750*0.08, 1.1*750*0.08) // a segment an RTT, for half of them
	within(t, "Scalable's in s", back(true).Seconds(), 1, 5)
}

// ORNL-CERN: 200 ms. The page: ssincr K shortens slow start by log K / log 2.
func TestSlowStartIncrement(t *testing.T) {
	ramp := func(ssincr int) (full time.Duration) {
		c := transfer(599, 200*ms, 4000, 1000)
		c.Sender.SSIncr = ssincr
		c.Observe = func(e *proto.Event) {
			if full == 0 && e.Kind == proto.AckIn && e.Cwnd == 1000 {
				full = e.At
			}
		}
		run(t, c)
		return full
	}
	one, hundred := ramp(1), ramp(100)
	within(t, "slow start in RTTs", one.Seconds()/0.2, 8, 10) // log2(1000/2) = 9
	within(t, "with ssincr 100", hundred.Seconds()/0.2, 1, 3)
	within(t, "their ratio", float64(one)/float64(hundred), 3.5, 7.5) // log(101)/log(2) = 6.7, in whole RTTs
}

// NERSC-ORNL with two losses, for the same bytes and the same window in bytes:
// larger segments recover faster, fragmented as they are; so do 10 segments at
// a time. 50, 55, 58 Mbit/s in the original.
func TestSegmentSize(t *testing.T) {
	var last float64
	for _, mss := range []int{1472, 2944, 5888} {
		c := transfer(100, 70*ms, 1000, uint64(300*1472/mss))
		c.Sender.MSS, c.Sender.MaxTime = mss, 60*time.Second
		c.Sender.MaxPkts = uint64(60e6 / mss)
		c.Sender.DropList = []uint64{uint64(5000 * 1472 / mss), uint64(12000 * 1472 / mss)}
		r := run(t, c)
		if got := mbps(c, r); got < last*1.05 {
			t.Errorf("mss %d: %.1f Mbit/s, after %.1f", mss, got, last)
		} else {
			t.Logf("mss %d: %.1f Mbit/s", mss, got)
			last = got
		}
		within(t, "largest burst in segments", float64(r.Sender.MaxBurst), 1, 300)
	}
	c := transfer(100, 70*ms, 1000, 300)
	c.Sender.DropList = []uint64{5000, 12000}
	one := run(t, c)
	c.Sender.InitSegs, c.Sender.Increment = 10, 10
	ten := run(t, c)
	within(t, "a virtual mss of 10, over 1", mbps(c, ten)/mbps(c, one), 1.3, 2)
}

// A datagram larger than the MTU takes the place of its fragments in the queue
// and on the link, and is lost with any of them.
func TestFragments(t *testing.T) {
	p := newPath(Path{RateBps: 8e6, Queue: 5}, nil)
	for bytes, want := range map[int]int{1472: 1, 1473: 2, 2944: 2, 2952: 2, 2953: 3, 65507: 45} {
		if got := p.packets(bytes); got != want {
			t.Errorf("%d bytes are %d packets, want %d", bytes, got, want)
		}
	}
	c := transfer(0, 100*ms, 0, 10)
	c.Sender.MSS, c.Sender.MaxPkts, c.Sender.MaxTime = 5888, 20000, 0
	c.Sender.SACK, c.Receiver.SACK = true, true
	c.Forward.Loss = 0.01
	r := run(t, c)
	within(t, "share of datagrams of 4 packets lost", float64(r.Forward.Lost)/float64(r.Forward.Sent), 0.035, 0.044) // 1-0.99^4
}

// UT-ORNL: 100 Mbit/s hosts, policed to 50 Mbit/s with a large burst. A window
// of 22 KB loses nothing and gets 41 Mbit/s in the original; larger ones lose.
func TestPolicer(t *testing.T) {
	c := transfer(100, 4300*time.Microsecond, 100, 15)
	c.Forward.PoliceBps, c.Forward.PoliceBurst = 50e6, 250e3
	small := run(t, c)
	within(t, "22 KB in Mbit/s", mbps(c, small), 37, 43)
	if small.Forward.Policed > 0 {
		t.Errorf("22 KB: %d segments dropped", small.Forward.Policed)
	}
	c.Sender.RcvrWin = 60
	large := run(t, c)
	if large.Forward.Policed == 0 {
		t.Error("88 KB: nothing was dropped")
	}
	within(t, "88 KB in Mbit/s", mbps(c, large), 20, 50)
	c.Sender.MaxTime, c.Forward.PoliceBurst = 150*ms, 1e6 // which is not yet used up
	within(t, "at first, in Mbit/s", mbps(c, run(t, c)), 65, 98)
}

// ORNL-cable: 60 % out of order, displaced by as much as 30. 0.7 Mbit/s with
// dup_thresh 3, 1.7 with 9 in the original.
func TestCable(t *testing.T) {
	c := transfer(6, 100*ms, 50, 100)
	c.Forward.Reorder, c.Forward.DisplaceMin, c.Forward.Displace, c.Forward.Hold = 0.6, 1, 30, 100*ms
	three := run(t, c)
	c.Sender.DupThresh = 9
	nine := run(t, c)
	within(t, "dup_thresh 3 in Mbit/s", mbps(c, three), 0.3, 0.9)
	within(t, "dup_thresh 9 in Mbit/s", mbps(c, nine), 1.2, 2.2)
	if three.Sender.Rxmts != three.Receiver.Duplicates {
		t.Errorf("%d retransmissions, %d of them needless", three.Sender.Rxmts, three.Receiver.Duplicates)
	}
}

// ORNL-cable with an uplink of 128 kbit/s, which ACKs fill: delayed and trimmed
// ones make the transfer faster.
func TestAckLimited(t *testing.T) {
	c := transfer(6, 100*ms, 100, 100)
	c.Sender.SACK, c.Receiver.SACK = true, true
	c.Back.RateBps, c.Back.Queue = 128e3, 50
	rate := map[bool]map[bool]float64{true: {}, false: {}}
	for _, untrimmed := range []bool{true, false} {
		for _, delayed := range []bool{false, true} {
			c.Untrimmed, c.Receiver.DelAck = untrimmed, 0
			if delayed {
				c.Receiver.DelAck = 200 * ms
			}
			rate[untrimmed][delayed] = mbps(c, run(t, c))
		}
	}
	t.Logf("%.2f and %.2f Mbit/s untrimmed, %.2f and %.2f trimmed", rate[true][false], rate[true][true], rate[false][false], rate[false][true])
	// 128 bytes of an untrimmed ACK: 125 of them a second, a segment of 1460 bytes each; what is lost of ACKs comes on top.
	within(t, "untrimmed in Mbit/s", rate[true][false], 1.4, 2.5)
	within(t, "trimmed and delayed, over that", rate[false][true]/rate[true][false], 1.7, 2.5)
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

// As many segments are overtaken in clusters as without, each while no other
// of its cluster is, and there are fewer recoveries.
func TestClusters(t *testing.T) {
	c := transfer(599, 80*ms, 4000, 2000)
	c.Sender.SACK, c.Receiver.SACK = true, true
	c.Sender.MaxPkts, c.Sender.MaxTime, c.Sender.DupThresh = 200000, 0, 19
	c.Forward.Reorder, c.Forward.Displace = 0.003, 7
	for _, cluster := range []int{1, 5} {
		c.Forward.Cluster = cluster
		r := run(t, c)
		within(t, "share overtaken", float64(r.Forward.Overtaken)/float64(r.Forward.Sent), 0.0024, 0.0036)
		if cluster > 1 { // one more where a cluster follows at once
			within(t, "displacement", float64(r.Receiver.Displacement), 7, 8)
		}
	}
	c.Sender.DupThresh = 3
	alone, clustered := c, run(t, c)
	alone.Forward.Cluster = 1
	if apart := run(t, alone); 2*clustered.Sender.Dup3s > apart.Sender.Dup3s {
		t.Errorf("%d recoveries with clusters, %d without", clustered.Sender.Dup3s, apart.Sender.Dup3s)
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
