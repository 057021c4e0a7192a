package sim

import (
	"testing"
	"time"

	"dumbbell/transports/atou/config"
	"dumbbell/transports/atou/proto"
)

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

// Hosts at 100 Mbit/s, 77 ms, a bandwidth-delay product of 660 segments and a
// window of 1500: both reach the path's rate, Vegas without filling the queue.
// 85 Mbit/s each in the original.
func TestVegasLeavesDeepBuffersEmpty(t *testing.T) {
	c := transfer(100, 77*ms, 0, 1500)
	reno := run(t, c)
	c.Sender.Vegas, c.Sender.Alpha, c.Sender.Beta, c.Sender.Gamma = true, 50, 80, 400
	c.Sender.ThreshInit, c.Sender.VegasRTT = 0, config.RTTMax
	vegas := run(t, c)
	for name, r := range map[string]Result{"Reno": reno, "Vegas": vegas} {
		within(t, name+" in Mbit/s", mbps(c, r), 85, 98)
	}
	within(t, "Reno's mean RTT in ms", float64(reno.Sender.AvgRTT())/1e6, 160, 180)
	within(t, "Vegas's", float64(vegas.Sender.AvgRTT())/1e6, 77, 110)
}
