package sim

import (
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
func TestRenoSawtoothAndVegasSteady(t *testing.T) {
	c := transfer(1.6, 100*ms, 3, 100)
	c.Sender.MaxTime = 60 * time.Second
	c.Receiver.DelAck = 200 * ms
	r := run(t, c)
	t.Log(r)
	within(t, "Reno's share of the link", mbps(c, r)/(1.6*1460/1488), 0.70, 0.85)

	c.Sender.Vegas = true
	var waiting, n int
	c.Queue = func(now time.Duration, length int) {
		if now > 30*time.Second {
			waiting += length
			n++
		}
	}
	v := run(t, c)
	t.Log(v)
	within(t, "Vegas's share of the link", mbps(c, v)/(1.6*1460/1488), 0.95, 1)
	within(t, "Vegas's queue", float64(waiting)/float64(n), 1, 4)
	if v.Sender.Rxmts != 0 {
		t.Errorf("Vegas retransmitted %d segments", v.Sender.Rxmts)
	}
}

// PSC-ORNL: OC12, 77 ms, window 2000, 10 s. 36 and 232 Mbit/s in the original,
// which left slow start at about 120 segments, 0.5 s after the start.
func TestVegasFloyd(t *testing.T) {
	c := transfer(599, 77*ms, 2000, 2000)
	c.Sender.Vegas = true
	var exit proto.Event
	c.Observe = func(e *proto.Event) {
		if exit.At == 0 && e.Kind == proto.AckIn && e.Ssthresh < 2000 {
			exit = *e
		}
	}
	standard := run(t, c)
	within(t, "standard Vegas in Mbit/s", mbps(c, standard), 20, 45)
	within(t, "cwnd at gamma", float64(exit.Cwnd), 90, 160)
	within(t, "time of gamma in s", exit.At.Seconds(), 0.35, 0.75)
	c.Observe = nil
	c.Sender.VegasFloyd = true
	floyd := run(t, c)
	within(t, "with Floyd's slow start in Mbit/s", mbps(c, floyd), 200, 300)
	within(t, "their ratio", mbps(c, floyd)/mbps(c, standard), 5, 12)
}
