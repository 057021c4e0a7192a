package proto

import (
	"math"
	"testing"
	"time"

	"dumbbell/transports/atou/config"
)

const ms = time.Millisecond

// pump sends all that may go now, and returns the segments.
func pump(s *Sender, now time.Duration) (all []uint64) {
	for seg, ok := s.Next(now); ok; seg, ok = s.Next(now) {
		s.Sent(now, seg)
		all = append(all, seg.Seg)
	}
	return all
}

// rounds acknowledges each segment by itself for so many RTTs of 100 ms, and
// returns cwnd after each.
func rounds(s *Sender, n int) (cwnd []float64) {
	now := 100 * ms
	sent := pump(s, now)
	for range n {
		var next []uint64
		now += 100 * ms
		for _, seg := range sent {
			s.Ack(now, &Ack{Cum: seg + 1, Seg: seg, Sent: now - 100*ms})
			next = append(next, pump(s, now)...)
		}
		sent = next
		cwnd = append(cwnd, s.cwnd)
	}
	return cwnd
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s is %v, want %v within %v", what, got, want, tolerance)
	}
}

func sender(change func(*config.Sender)) *Sender {
	c := config.DefaultSender()
	c.RcvrWin, c.MaxTime, c.MaxPkts = 100000, 0, 1e9
	change(&c)
	return NewSender(c)
}

// TestSumRTT: a day of RTTs is counted, and no parts of µs are lost of short ones.
func TestSumRTT(t *testing.T) {
	s := sender(func(*config.Sender) {})
	for range 3 {
		s.sample(1500)
	}
	if st := s.Stats(); st.SumRTT != 4 || st.AvgRTT() != 1333 {
		t.Errorf("sum %d µs, mean %v", st.SumRTT, st.AvgRTT())
	}
	const day = 75e9 // segments at 10 Gbit/s
	s.stats.RTTs, s.stats.SumRTT = day, day*180e3
	s.sample(180 * ms)
	if st := s.Stats(); st.AvgRTT() != 180*ms {
		t.Errorf("sum %d µs, mean %v", st.SumRTT, st.AvgRTT())
	}
}

func TestTimer(t *testing.T) {
	tm := timer{least: 500 * ms}
	if tm.rto() != 500*ms {
		t.Errorf("initial time-out %v", tm.rto())
	}
	tm.sample(400 * ms) // RFC 6298 (2.2): RTTVAR is R/2
	if tm.rto() != 1200*ms {
		t.Errorf("time-out %v after the first RTT", tm.rto())
	}
	tm.sample(800 * ms) // (2.3): RTTVAR = 3/4*200+1/4*400, SRTT = 7/8*400+1/8*800
	if tm.srtt != 450*ms || tm.rttvar != 250*ms {
		t.Errorf("srtt %v, rttvar %v", tm.srtt, tm.rttvar)
	}
	tm.backoff = 2
	if tm.rto() != 5800*ms {
		t.Errorf("time-out %v after two others", tm.rto())
	}
	tm.backoff = 60
	if tm.rto() != 64*time.Second {
		t.Errorf("time-out %v after many", tm.rto())
	}
	tm.backoff, tm.tick = 0, time.Second
	if tm.restart(100 * ms); tm.due != 2*time.Second {
		t.Errorf("a time-out of 1.45 s at 0.1 s is due at %v with a tick of 1 s", tm.due)
	}
}

func TestTimeoutGoesBack(t *testing.T) {
	s := sender(func(c *config.Sender) { c.InitSegs, c.Tick = 10, 0 })
	pump(s, 0)
	at, ok := s.Deadline()
	if !ok || at != 500*ms {
		t.Fatalf("deadline %v, %v", at, ok)
	}
	s.Timeout(at - 1)
	if s.stats.Timeouts != 0 {
		t.Error("a time-out before it is due")
	}
	s.Timeout(at)
	if got := pump(s, at); len(got) != 1 || got[0] != 0 || s.cwnd != 1 || s.ssthresh != 5 {
		t.Errorf("after a time-out %v go, cwnd %v, ssthresh %v", got, s.cwnd, s.ssthresh)
	}
	if at, _ = s.Deadline(); at != 1500*ms {
		t.Errorf("the second time-out is due at %v", at)
	}
	s.Timeout(at)
	if pump(s, at); s.ssthresh != 5 {
		t.Errorf("ssthresh is %v after a second time-out of a segment", s.ssthresh)
	}
	// Duplicates of what was outstanding begin no recovery.
	for seg := uint64(1); seg < 9; seg++ {
		s.Ack(at, &Ack{Seg: seg})
	}
	if s.stats.Dup3s != 0 {
		t.Error("old duplicate ACKs begin a recovery")
	}
	s.Ack(at+ms, &Ack{Cum: 10, Sent: at})
	if got := pump(s, at+ms); len(got) != 2 || got[0] != 10 || s.stats.Rxmts != 2 {
		t.Errorf("after all is acknowledged %v go; %d retransmissions", got, s.stats.Rxmts)
	}
}

func TestLimitedTransmitBurstLimitRefusedAndDrops(t *testing.T) {
	s := sender(func(c *config.Sender) { c.InitSegs, c.DropList = 10, []uint64{3, 4} })
	for n := uint64(0); n < 10; n++ {
		seg, _ := s.Next(0)
		if seg.Seg != n || seg.Drop != (n == 3 || n == 4) {
			t.Fatalf("segment %+v, want %d", seg, n)
		}
		s.Refused()
		if again, _ := s.Next(0); again != seg {
			t.Errorf("after a refusal %+v goes, not %+v", again, seg)
		}
		s.Sent(0, seg)
	}
	for dup := uint64(0); dup < 2; dup++ { // RFC 3042: a new segment at each of two
		s.Ack(ms, &Ack{Seg: 1 + dup})
		if got := pump(s, ms); len(got) != 1 || got[0] != 10+dup {
			t.Errorf("at duplicate %d %v go", dup, got)
		}
	}
	s.Ack(ms, &Ack{Seg: 5})
	if got := pump(s, ms); len(got) != 1 || got[0] != 0 || s.stats.Enobufs != 10 {
		t.Errorf("at the third %v go", got)
	}

	s = sender(func(c *config.Sender) { c.InitSegs, c.BurstLimit = 10, 4 })
	if got := pump(s, 0); len(got) != 4 {
		t.Errorf("%d go with burst_limit 4", len(got))
	}
	s.Ack(ms, &Ack{Cum: 1})
	if got := pump(s, ms); len(got) != 4 || s.stats.MaxBurst != 4 {
		t.Errorf("%d go at an ACK", len(got))
	}
}

// TestDuplicateOfTheOldIsNoLoss: ACKs that needless retransmissions cause.
func TestDuplicateOfTheOldIsNoLoss(t *testing.T) {
	s := sender(func(c *config.Sender) { c.InitSegs = 10 })
	pump(s, 0)
	s.Ack(ms, &Ack{Cum: 5, Seg: 4})
	for range 5 {
		s.Ack(ms, &Ack{Cum: 5, Seg: 2})
	}
	if s.stats.Dups != 5 || s.stats.Dup3s != 0 {
		t.Errorf("%d duplicates, %d recoveries", s.stats.Dups, s.stats.Dup3s)
	}
}

func TestIdleRestart(t *testing.T) {
	for _, c := range []struct {
		maxidle float64
		idle    time.Duration
		want    float64
	}{{0, time.Hour, 10}, {2, 900 * ms, 10}, {2, 1100 * ms, 2}} {
		s := sender(func(s *config.Sender) { s.InitSegs, s.MaxIdle = 2, c.maxidle })
		s.setCwnd(9)
		pump(s, 0)
		s.Ack(ms, &Ack{Cum: 9, Seg: 8, Sent: 0})
		s.Next(c.idle)
		near(t, "cwnd", s.cwnd, c.want, 0)
	}
}

func TestBadAcks(t *testing.T) {
	s := sender(func(c *config.Sender) { c.InitSegs = 10 })
	pump(s, 0)
	s.Ack(ms, &Ack{Cum: 5})
	s.Ack(ms, &Ack{Cum: 4})
	s.Ack(ms, &Ack{Cum: 16})
	if s.stats.BadAcks != 2 || s.una != 5 {
		t.Errorf("%d bad ACKs, una %d", s.stats.BadAcks, s.una)
	}
}

func TestAllocatesNothing(t *testing.T) {
	s := sender(func(c *config.Sender) { c.SACK, c.PRR, c.Reloss, c.RcvrWin = true, true, true, 100 })
	r := NewReceiver(config.Receiver{SACK: true}, 100)
	s.Observe = func(*Event) {}
	var now time.Duration
	var a Ack
	n := 0
	allocations := testing.AllocsPerRun(1000, func() {
		now += ms
		for range 10 {
			seg, ok := s.Next(now)
			if !ok {
				break
			}
			s.Sent(now, seg)
			if n++; n%50 == 0 { // lost
				continue
			}
			if r.Data(now, &Data{Seg: seg.Seg, Sent: now - ms}) {
				r.Ack(&a)
				s.Ack(now, &a)
			}
		}
		s.Timeout(now)
	})
	if allocations != 0 || s.stats.Packs+s.stats.Dup3s+s.stats.Timeouts == 0 {
		t.Errorf("%v allocations; %+v", allocations, s.stats)
	}
}

// TestGap: segments leave at multiples of the gap as long as the window lets
// them, and on a new schedule after it has not.
func TestGap(t *testing.T) {
	s := sender(func(c *config.Sender) { c.Gap, c.InitSegs = 3*ms, 4 })
	now := time.Duration(0)
	for want := range uint64(4) {
		if got := pump(s, now); len(got) != 1 || got[0] != want {
			t.Fatalf("%v leave at %v, want %d", got, now, want)
		}
		at, held := s.Held()
		due, ok := s.Deadline()
		if want == 3 { // the window is full
			if held {
				t.Errorf("held until %v, with nothing to send", at)
			}
			break
		}
		if !held || at != time.Duration(want+1)*3*ms || !ok || due != at {
			t.Fatalf("held until %v, deadline %v", at, due)
		}
		if got := pump(s, at-1); got != nil {
			t.Fatalf("%v leave before their time", got)
		}
		now = at + ms // late, which is not to delay those that follow
	}
	now = time.Second
	s.Ack(now, &Ack{Cum: 4, Seg: 3, Sent: 9 * ms})
	if got := pump(s, now); len(got) != 1 {
		t.Errorf("%v leave at once", got)
	}
	if at, held := s.Held(); !held || at != now+3*ms {
		t.Errorf("held until %v", at)
	}
}

// TestState follows a sender through the states that TCP tells as ca_state.
func TestState(t *testing.T) {
	s := sender(func(c *config.Sender) { c.InitSegs, c.SACK, c.Tick = 10, true, 0 })
	expect := func(state State, delivered, sacked, lost, resent uint64, busy time.Duration) {
		t.Helper()
		st := s.Stats()
		if st.State != state || st.Delivered != delivered || st.Sacked != sacked || st.Lost != lost || st.Resent != resent || s.Busy(100*ms) != busy {
			t.Errorf("%v, delivered %d, sacked %d, lost %d, resent %d, busy %v; want %v, %d, %d, %d, %d, %v",
				st.State, st.Delivered, st.Sacked, st.Lost, st.Resent, s.Busy(100*ms), state, delivered, sacked, lost, resent, busy)
		}
	}
	expect(Open, 0, 0, 0, 0, 0)
	pump(s, 10*ms)
	expect(Open, 0, 0, 0, 0, 90*ms)
	sack := func(cum, from, to uint64) {
		a := &Ack{Cum: cum, Seg: to - 1, Sent: 10 * ms}
		if to > from {
			a.Blocks[0], a.NumBlocks = Block{from, to}, 1
		}
		s.Ack(20*ms, a)
	}
	sack(1, 2, 3)
	expect(Disorder, 2, 1, 0, 0, 90*ms)
	sack(1, 2, 4)
	sack(1, 2, 5)
	expect(Recovery, 4, 3, 1, 0, 90*ms)
	pump(s, 21*ms)
	expect(Recovery, 4, 3, 1, 1, 90*ms)
	due, _ := s.Deadline()
	s.Timeout(due)
	if st := s.Stats(); st.State != Loss || st.Backoff != 1 || st.RTO != time.Second || st.Sacked != 3 || st.Lost+st.Resent != 0 {
		t.Errorf("%+v", st)
	}
	end := s.Stats().Max
	s.Ack(due+ms, &Ack{Cum: end, Seg: 1, Sent: due})
	if st := s.Stats(); st.State != Open || st.Backoff != 0 || st.Delivered != end || s.Busy(2*due) != due+ms-10*ms {
		t.Errorf("%+v, busy %v", st, s.Busy(2*due))
	}
}
