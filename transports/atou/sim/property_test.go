package sim

import (
	"slices"
	"testing"
	"time"

	"dumbbell/transports/atou/config"
	"dumbbell/transports/atou/proto"

	"pgregory.net/rapid"
)

func drawPath(t *rapid.T, name string) Path {
	p := Path{
		RateBps: rapid.SampledFrom([]int64{0, 1e6, 20e6}).Draw(t, name+" rate"),
		Delay:   time.Duration(rapid.Int64Range(0, int64(50*ms)).Draw(t, name+" delay")),
		Queue:   rapid.SampledFrom([]int{0, 3, 10, 100}).Draw(t, name+" queue"),
		Loss:    rapid.SampledFrom([]float64{0, 0, 0.01, 0.1, 0.3}).Draw(t, name+" loss"),
		Drop:    rapid.SliceOfNDistinct(rapid.Uint64Range(0, 200), 0, 40, rapid.ID).Draw(t, name+" drop"),

		MTU:         rapid.SampledFrom([]int{0, 576}).Draw(t, name+" mtu"),
		PoliceBps:   rapid.SampledFrom([]int64{0, 0, 500e3}).Draw(t, name+" policed rate"),
		PoliceBurst: rapid.IntRange(2000, 20000).Draw(t, name+" policed burst"),

		Reorder:   rapid.SampledFrom([]float64{0, 0.02, 0.5}).Draw(t, name+" reorder"),
		Displace:  rapid.IntRange(0, 30).Draw(t, name+" displacement"),
		Hold:      rapid.SampledFrom([]time.Duration{0, 200 * ms}).Draw(t, name+" hold"),
		Duplicate: rapid.SampledFrom([]float64{0, 0.02, 0.5}).Draw(t, name+" duplicate"),
	}
	p.DisplaceMin = rapid.IntRange(0, p.Displace).Draw(t, name+" least displacement")
	slices.Sort(p.Drop)
	return p
}

func drawSender(t *rapid.T) config.Sender {
	flag := func(name string) bool { return rapid.Bool().Draw(t, name) }
	c := config.DefaultSender()
	c.MaxPkts = rapid.Uint64Range(1, 400).Draw(t, "maxpkts")
	c.MaxTime = 0
	c.RcvrWin = rapid.Uint64Range(1, 100).Draw(t, "rcvrwin")
	c.InitSegs = rapid.IntRange(1, int(c.RcvrWin)).Draw(t, "initsegs")
	c.SSIncr = rapid.IntRange(1, 20).Draw(t, "ssincr")
	c.ThreshInit = rapid.SampledFrom([]float64{0, 0.1, 1}).Draw(t, "thresh_init")
	c.Increment = rapid.IntRange(1, 20).Draw(t, "increment")
	c.Multiplier = rapid.Float64Range(0.01, 0.99).Draw(t, "multiplier")
	c.ABC, c.Floyd, c.NewReno, c.SACK = flag("abc"), flag("floyd"), flag("newreno"), flag("sack")
	c.MaxSSThresh = rapid.IntRange(2, 50).Draw(t, "max_ssthresh")
	c.FACK, c.Rampdown = c.SACK && flag("fack"), c.SACK && flag("rampdown")
	c.PRR, c.Reloss = c.SACK && !c.Rampdown && flag("prr"), c.SACK && flag("reloss")
	c.HighSpeed, c.Linux = flag("highspeed"), flag("linux")
	c.Scalable = !c.HighSpeed && flag("scalable")
	c.Vegas = flag("vegas")
	c.VegasFloyd = c.Vegas && flag("vegas_floyd")
	c.VegasSS = rapid.IntRange(1, 2).Draw(t, "vegas_ss")
	c.VegasRTT = config.RTTKind(rapid.IntRange(0, 3).Draw(t, "vegas_rtt"))
	c.DupThresh = rapid.IntRange(1, 20).Draw(t, "dup_thresh")
	c.BurstLimit = rapid.SampledFrom([]int{0, 1, 5}).Draw(t, "burst_limit")
	c.Gap = rapid.SampledFrom([]time.Duration{0, 0, time.Microsecond, 3 * ms}).Draw(t, "gap")
	c.Tick = rapid.SampledFrom([]time.Duration{0, 10 * ms, time.Second}).Draw(t, "tick")
	c.MaxIdle = rapid.SampledFrom([]float64{0, 0.5}).Draw(t, "maxidle")
	return c
}

// TestAnyNetwork: whatever is lost, overtaken and duplicated, the transfer
// ends, and its application has each segment once.
func TestAnyNetwork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Config{
			Sender: drawSender(t), Forward: drawPath(t, "forward"), Back: drawPath(t, "back"), Seed: rapid.Uint64().Draw(t, "seed"),
			Receiver: config.Receiver{
				SACK:   rapid.Bool().Draw(t, "receiver's sack"),
				DelAck: rapid.SampledFrom([]time.Duration{0, 40 * ms, 200 * ms}).Draw(t, "delack"),
			},
		}
		var una, sent, resent uint64
		c.Observe = func(e *proto.Event) {
			switch e.Kind {
			case proto.Xmt:
				if e.Seg != sent {
					t.Fatalf("segment %d is first sent after %d", e.Seg, sent)
				}
				sent++
			case proto.Rxt:
				if e.Seg < e.Una || e.Seg >= sent {
					t.Fatalf("segment %d is sent again, with una %d and max %d", e.Seg, e.Una, sent)
				}
				resent++
			}
			if e.Cwnd < 1 || uint64(e.Cwnd) > c.Sender.RcvrWin || e.Ssthresh < 1 {
				t.Fatalf("cwnd %d, ssthresh %d", e.Cwnd, e.Ssthresh)
			}
			if e.Una < una || e.Nxt < e.Una || e.Max < e.Nxt || e.Max > e.Una+c.Sender.RcvrWin {
				t.Fatalf("una %d after %d, nxt %d, max %d", e.Una, una, e.Nxt, e.Max)
			}
			una = e.Una
		}
		r, err := Run(c)
		if err != nil {
			t.Fatal(err)
		}
		n := c.Sender.MaxPkts
		if r.Delivered != n || r.Receiver.Received != n || r.Sender.Una != n || sent != n {
			t.Fatalf("%d of %d segments delivered, %d received, %d acknowledged", r.Delivered, n, r.Receiver.Received, r.Sender.Una)
		}
		if r.Receiver.Beyond != 0 || r.Sender.Out != n+resent || r.Sender.Rxmts != resent {
			t.Fatalf("%+v, %+v", r.Sender, r.Receiver)
		}
		if want := r.Receiver.Arrived - r.Receiver.Received; r.Receiver.Duplicates != want {
			t.Fatalf("%d duplicates, want %d", r.Receiver.Duplicates, want)
		}
	})
}

// TestCleanNetwork: without loss and reordering nothing is sent twice.
func TestCleanNetwork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Config{Sender: drawSender(t), Forward: Path{Delay: 20 * ms}, Back: Path{Delay: 20 * ms}}
		c.Receiver.SACK = c.Sender.SACK
		r, err := Run(c)
		if err != nil {
			t.Fatal(err)
		}
		if r.Sender.Rxmts+r.Sender.Dups+r.Sender.BadAcks+r.Sender.Timeouts+r.Receiver.Duplicates != 0 {
			t.Fatalf("%+v", r.Sender)
		}
	})
}

func TestSameSeedSameResult(t *testing.T) {
	c := transfer(20, 40*ms, 30, 200)
	c.Forward.Loss, c.Forward.Reorder, c.Forward.Displace, c.Forward.Duplicate = 0.01, 0.01, 5, 0.01
	a, b := run(t, c), run(t, c)
	c.Seed++
	if other := run(t, c); a != b || a == other {
		t.Errorf("%+v\n%+v\n%+v", a, b, other)
	}
}
