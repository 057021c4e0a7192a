package sim

import (
	"testing"
	"time"

	"dumbbell/transports/atou/config"
	"dumbbell/transports/atou/proto"
)

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
		{"PRR", func(c *config.Sender) { c.SACK, c.PRR = true, true }, 0, 0.3},
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

// likeLinux is a transfer with SACK over a long path, started as Linux does.
func likeLinux() Config {
	c := transfer(99, 70*ms, 578, 4000)
	c.Receiver.SACK, c.Receiver.DelAck = true, 40*ms
	c.Sender.SACK, c.Sender.ABC, c.Sender.InitSegs, c.Sender.ThreshInit, c.Sender.MSS = true, true, 10, 0, 1472
	c.Sender.Timeout, c.Sender.Tick = 300*ms, 0
	return c
}

// Slow start overflows the queue by half of its window, and retransmissions are
// lost too. Only what finds them needs no time-out, and PRR alone sends few in
// vain: reno of Linux 6.12 had 1159 retransmissions and no time-out here, and
// highspeed 1169.
func TestOverflow(t *testing.T) {
	overflow := func(change func(*config.Sender)) Result {
		c := likeLinux()
		change(&c.Sender)
		r := run(t, c)
		t.Logf("%.1f Mbit/s, %d time-outs, %d retransmissions", mbps(c, r), r.Sender.Timeouts, r.Sender.Rxmts)
		return r
	}
	if r := overflow(func(c *config.Sender) { c.Rampdown = true }); r.Sender.Timeouts == 0 {
		t.Error("no retransmission is lost: the path is not what it is meant to be")
	}
	for _, highspeed := range []bool{false, true} {
		r := overflow(func(c *config.Sender) { c.PRR, c.Reloss, c.HighSpeed, c.Linux = true, true, highspeed, true })
		if r.Sender.Timeouts != 0 {
			t.Errorf("%d time-outs", r.Sender.Timeouts)
		}
		within(t, "retransmissions", float64(r.Sender.Rxmts), 1159*0.95, 1159*1.05)
	}
}

// Recoveries follow each other, each begun with what the last one sent again,
// and the ACKs of what left before tell nothing: no segment comes twice.
func TestNothingIsResentInVain(t *testing.T) {
	var resent uint64
	for seed := range uint64(20) {
		c := likeLinux()
		c.Seed, c.Forward.Loss, c.Sender.MaxTime = seed, 0.01, 10*time.Second
		c.Sender.PRR, c.Sender.Reloss, c.Sender.HighSpeed = true, true, true
		r := run(t, c)
		if resent += r.Sender.Rxmts; r.Receiver.Duplicates > r.Sender.Timeouts {
			t.Errorf("seed %d: %d of %d come twice, after %d time-outs", seed, r.Receiver.Duplicates, r.Sender.Rxmts, r.Sender.Timeouts)
		}
	}
	t.Logf("%d retransmissions", resent)
}

// PRR's window at the end of a recovery is ssthresh, and until then it sends in
// proportion.
func TestPRR(t *testing.T) {
	var before, sent, acks int
	c := transfer(100, 100*ms, 1000, 1000)
	c.Receiver.SACK = true
	c.Sender.ThreshInit = 0.125
	c.Sender.SACK, c.Sender.PRR, c.Sender.MaxPkts, c.Sender.DropList = true, true, 3000, []uint64{2000}
	c.Observe = func(e *proto.Event) {
		switch {
		case e.Kind == proto.DupRxmit:
			before = e.Cwnd
		case before > 0 && e.Una == 2000 && (e.Kind == proto.Xmt || e.Kind == proto.Rxt):
			sent++
		case before > 0 && e.Una == 2000 && e.Kind == proto.AckIn:
			if acks++; sent > acks/2+1 || sent < acks/2-1 {
				t.Fatalf("%d segments have left after %d of %d ACKs", sent, acks, before)
			}
		case before > 0 && e.Kind == proto.AckIn && e.Una > 2000 && acks > 0:
			if acks = 0; e.Cwnd != before/2 {
				t.Errorf("cwnd is %d after the recovery, was %d before", e.Cwnd, before)
			}
		}
	}
	run(t, c)
	if before == 0 || acks != 0 {
		t.Errorf("no recovery, or no end of it")
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
