package proto

import (
	"fmt"
	"math"
	"testing"

	"dumbbell/transports/atou/config"
)

func TestSlowStartDoubles(t *testing.T) {
	for i, w := range rounds(sender(func(c *config.Sender) {}), 10) {
		near(t, "cwnd", w, float64(int(4)<<i), 0)
	}
	// A virtual MSS of K multiplies all by K; ssincr multiplies the growth.
	for i, w := range rounds(sender(func(c *config.Sender) { c.InitSegs = 10 }), 6) {
		near(t, "cwnd of 10 initial segments", w, float64(int(20)<<i), 0)
	}
	for i, w := range rounds(sender(func(c *config.Sender) { c.SSIncr = 3 }), 6) {
		near(t, "cwnd with ssincr 3", w, 2*math.Pow(4, float64(i+1)), 0)
	}
	// Up to ssthresh, not above.
	w := rounds(sender(func(c *config.Sender) { c.RcvrWin, c.ThreshInit = 1000, 0.05 }), 6)
	near(t, "cwnd at ssthresh 50", w[4], 50, 1)
}

func TestCongestionAvoidance(t *testing.T) {
	begin := func(c *config.Sender) { c.RcvrWin, c.ThreshInit, c.InitSegs = 100000, 0.001, 200 }
	growth := func(change func(*config.Sender)) float64 {
		s := sender(func(c *config.Sender) { begin(c); change(c) })
		w := rounds(s, 5)
		return (w[4] - w[0]) / 4
	}
	near(t, "Reno's growth in an RTT", growth(func(c *config.Sender) {}), 1, 0.01)
	near(t, "growth with increment 10", growth(func(c *config.Sender) { c.Increment = 10 }), 10, 0.5)
	near(t, "Scalable's growth", growth(func(c *config.Sender) { c.Scalable = true }), 2, 0.1)
	near(t, "HighSpeed's growth", growth(func(c *config.Sender) { c.HighSpeed = true }), highSpeedA(205), 0.1)
	near(t, "Vegas's growth without a queue", growth(func(c *config.Sender) { c.Vegas = true }), 1, 0)
}

func TestLimitedSlowStart(t *testing.T) {
	w := rounds(sender(func(c *config.Sender) { c.Floyd = true }), 40)
	for i := 1; i < len(w); i++ {
		switch grown := w[i] - w[i-1]; {
		case w[i] <= 100:
			near(t, "cwnd below max_ssthresh", w[i], 2*w[i-1], 0)
		case grown > 50.5: // RFC 3742: at most max_ssthresh/2 per RTT; half a segment for rounds that grow
			t.Errorf("cwnd grows from %v by %v", w[i-1], grown)
		case w[i-1] > 200 && grown < 25:
			t.Errorf("cwnd grows from %v by %v only", w[i-1], grown)
		}
	}
}

// TestGammaBesideFloyd: limited slow start begins at gamma or at max_ssthresh,
// whichever comes first.
func TestGammaBesideFloyd(t *testing.T) {
	for _, c := range []struct{ cwnd, want float64 }{{50, 50}, {150, 100}} {
		s := sender(func(c *config.Sender) { c.Vegas, c.VegasFloyd, c.Floyd = true, true, true })
		s.cwnd = c.cwnd
		s.vegas.sample(100 * ms)
		s.vegas.sample(200 * ms)
		s.vegasRound(1)
		near(t, fmt.Sprintf("its begin at cwnd %g", c.cwnd), s.slowFrom, c.want, 0)
	}
}

// TestHighSpeedTable compares with RFC 3649, appendix B: the windows at which
// a(w) reaches the next whole number, and b(w) there.
func TestHighSpeedTable(t *testing.T) {
	for _, c := range []struct{ w, a, b float64 }{
		{38, 1, 0.50}, {118, 2, 0.44}, {221, 3, 0.41}, {347, 4, 0.38}, {495, 5, 0.37}, {663, 6, 0.35}, {851, 7, 0.34},
		{1058, 8, 0.33}, {1284, 9, 0.32}, {1529, 10, 0.31}, {1793, 11, 0.30}, {2076, 12, 0.29}, {2378, 13, 0.28},
	} {
		near(t, "a", highSpeedA(c.w), c.a, 0.02*c.a)
		near(t, "b", highSpeedB(c.w), c.b, 0.006)
	}
	near(t, "b at 83000", highSpeedB(83000), 0.1, 1e-9)
}

// As tcp_highspeed.c has them, whose table ends at 38, 118, 221, 347, 495 and so
// on; b in 256ths.
func TestHighSpeedStep(t *testing.T) {
	for _, c := range []struct{ w, a, b float64 }{{0, 1, 128}, {30, 1, 128}, {60, 2, 112}, {200, 3, 104}, {300, 4, 98}, {400, 5, 93}} {
		near(t, fmt.Sprintf("a at %g", c.w), math.Ceil(highSpeedA(c.w)), c.a, 0)
		near(t, fmt.Sprintf("256 b at %g", c.w), 256*highSpeedB(highSpeedStep(c.w)), c.b, 1)
	}
	for w := 89053.0; w <= 1<<20; w += 1000 { // the end of its table
		near(t, fmt.Sprintf("a at %g", w), math.Ceil(highSpeedA(w)), 72, 0)
		near(t, fmt.Sprintf("256 b at %g", w), 256*highSpeedB(highSpeedStep(w)), 24, 1)
	}
}

func TestDecrease(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*config.Sender)
		w      float64
		want   float64
	}{
		{"Reno", func(c *config.Sender) {}, 100, 50},
		{"Reno's least", func(c *config.Sender) {}, 3, 2},
		{"multiplier", func(c *config.Sender) { c.Multiplier = 0.9 }, 100, 90},
		{"Scalable", func(c *config.Sender) { c.Scalable = true }, 100, 87.5},
		{"Scalable's Reno", func(c *config.Sender) { c.Scalable = true }, 16, 8},
		{"Scalable of Linux", func(c *config.Sender) { c.Scalable, c.Linux = true, true }, 16, 14},
		{"HighSpeed", func(c *config.Sender) { c.HighSpeed = true }, 83000, 74700},
		{"HighSpeed beyond its table", func(c *config.Sender) { c.HighSpeed, c.RcvrWin = true, 1<<20 }, 1 << 20, (1 - highSpeedB(89053)) * (1 << 20)},
		{"HighSpeed's Reno", func(c *config.Sender) { c.HighSpeed = true }, 38, 19},
	} {
		near(t, c.name, sender(c.change).decrease(c.w), c.want, 1e-6)
	}
}
