package proto

import (
	"slices"
	"testing"
	"time"

	"dumbbell/transports/atou/config"

	"pgregory.net/rapid"
)

// TestScoreboard compares pipe and the marks of loss with RFC 6675's
// definitions, evaluated segment by segment.
func TestScoreboard(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const dupThresh = 3
		window := rapid.Uint64Range(1, 150).Draw(t, "window")
		b := newScoreboard(window)
		una, top := uint64(0), window
		sacked, resent := map[uint64]bool{}, map[uint64]bool{}
		lost := func(seg uint64) bool { // IsLost: dupThresh SACKed segments above
			n := 0
			for s := seg + 1; s < top; s++ {
				if sacked[s] {
					n++
				}
			}
			return n >= dupThresh
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0, 1:
				from := rapid.Uint64Range(una, top-1).Draw(t, "start")
				to := min(top, from+rapid.Uint64Range(1, 20).Draw(t, "length"))
				b.sack(Block{from, to})
				for s := from; s < to; s++ {
					sacked[s] = true
				}
				b.markLost(una, dupThresh, false)
			case 2, 3:
				seg, ok := b.nextHole(b.edge)
				want, found := una, false
				for want < top && !found {
					if found = !sacked[want] && !resent[want] && lost(want); !found {
						want++
					}
				}
				if ok != found || ok && seg != want {
					t.Fatalf("next hole %d %v, want %d %v", seg, ok, want, found)
				}
				if ok {
					b.resend(0, seg)
					resent[seg] = true
				}
			case 4:
				to := rapid.Uint64Range(una, top-1).Draw(t, "una")
				b.advance(una, to)
				for s := una; s < to; s++ {
					delete(sacked, s)
					delete(resent, s)
				}
				top += to - una
				una = to
			}
			pipe := uint64(0) // SetPipe
			for s := una; s < top; s++ {
				if !sacked[s] && !lost(s) {
					pipe++
				}
				if !sacked[s] && resent[s] {
					pipe++
				}
			}
			if got := b.pipe(top - una); got != pipe {
				t.Fatalf("pipe %d, want %d", got, pipe)
			}
		}
	})
}

// windowOf10 has sent 0 to 9.
func windowOf10(change func(*config.Sender)) *Sender {
	s := sender(func(c *config.Sender) { c.InitSegs, c.Tick = 10, 0; change(c) })
	pump(s, 0)
	return s
}

func TestFACKTriggersByDistance(t *testing.T) {
	for _, fack := range []bool{false, true} {
		s := windowOf10(func(c *config.Sender) { c.SACK, c.FACK, c.Rampdown = true, fack, true })
		s.Ack(ms, &Ack{Seg: 4, Blocks: [3]Block{{4, 5}}, NumBlocks: 1}) // one duplicate, of the fifth segment
		if s.recovering != fack {
			t.Errorf("fack %v: recovery %v", fack, s.recovering)
		}
		if got := pump(s, ms); fack && !slices.Equal(got[:min(4, len(got))], []uint64{0, 1, 2, 3}) {
			t.Errorf("FACK resends %v first", got)
		}
	}
}

// What was resent goes once more, without a time-out, when three segments have
// arrived that left after it.
func TestLostRetransmission(t *testing.T) {
	for _, reloss := range []bool{false, true} {
		s := windowOf10(func(c *config.Sender) { c.SACK, c.Reloss = true, reloss })
		now := 100 * ms
		arrived := uint64(1) // 0 is lost
		ack := func(seg uint64, sent time.Duration) []uint64 {
			arrived = seg + 1
			s.Ack(now, &Ack{Seg: seg, Sent: sent, Blocks: [3]Block{{1, arrived}}, NumBlocks: 1})
			return pump(s, now)
		}
		var sent []uint64
		for seg := uint64(1); seg < 10; seg++ {
			sent = append(sent, ack(seg, 1)...)
		}
		resent := slices.Index(sent, 0)
		if resent < 0 || slices.Index(sent[resent+1:], 0) >= 0 {
			t.Fatalf("reloss %v: %v go", reloss, sent)
		}
		// 10 and 11 left before it, by limited transmit; it left at 100 ms, and all that follows later.
		now = 200 * ms
		var again []uint64
		for seg := uint64(10); seg < s.max; seg++ {
			again = append(again, ack(seg, now-99*ms)...)
			if got := slices.Contains(again, 0); got != (reloss && seg >= 12) {
				t.Fatalf("reloss %v: after three later ones, to %d, %v go", reloss, seg, again)
			}
			if seg == 14 {
				break
			}
		}
	}
}

// SACK finds una lost by what is SACKed above, though ACKs have been lost.
func TestSACKTriggersByScoreboard(t *testing.T) {
	s := windowOf10(func(c *config.Sender) { c.SACK = true })
	s.Ack(ms, &Ack{Seg: 3, Blocks: [3]Block{{1, 4}}, NumBlocks: 1})
	if !s.recovering {
		t.Error("three SACKed segments begin no recovery")
	}
}

// A sender with SACK recovers as NewReno does from a receiver without, and with
// Reloss it waits for what has left after the loss was found.
func TestSACKSenderWithoutBlocks(t *testing.T) {
	for _, reloss := range []bool{false, true} {
		s := windowOf10(func(c *config.Sender) { c.SACK, c.Reloss = true, reloss })
		for seg := uint64(1); seg < 9; seg++ {
			s.Ack(ms, &Ack{Seg: seg})
			pump(s, ms)
		}
		s.Ack(2*ms, &Ack{Cum: 3, Seg: 2})
		if got := pump(s, 2*ms); slices.Contains(got, 3) == reloss {
			t.Errorf("reloss %v: after what left before the recovery %v go", reloss, got)
		}
		s.Ack(2*ms, &Ack{Cum: 5, Seg: 0, Sent: ms})
		if got := pump(s, 2*ms); len(got) == 0 || got[0] != 5 {
			t.Errorf("reloss %v: after a partial ACK of 5 %v go", reloss, got)
		}
	}
}

// Rule (3) of NextSeg: with no room for new segments, a hole below the highest
// SACKed segment goes before it is taken as lost.
func TestNextSegRule3(t *testing.T) {
	s := windowOf10(func(c *config.Sender) { c.SACK, c.RcvrWin, c.Rampdown = true, 10, true })
	s.Ack(ms, &Ack{Seg: 3, Blocks: [3]Block{{1, 4}}, NumBlocks: 1})
	pump(s, ms)
	s.Ack(ms, &Ack{Seg: 6, Blocks: [3]Block{{6, 7}, {1, 4}}, NumBlocks: 2})
	if got := pump(s, ms); !slices.Equal(got, []uint64{4, 5}) {
		t.Errorf("%v go", got)
	}
}

// After a time-out what is SACKed does not go again.
func TestTimeoutSkipsSACKed(t *testing.T) {
	s := windowOf10(func(c *config.Sender) { c.SACK = true })
	s.Ack(ms, &Ack{Seg: 2, Blocks: [3]Block{{2, 3}}, NumBlocks: 1})
	at, _ := s.Deadline()
	s.Timeout(at)
	got := pump(s, at)
	s.Ack(at+ms, &Ack{Cum: 1, Seg: 0, Sent: at})
	got = append(got, pump(s, at+ms)...)
	s.Ack(at+2*ms, &Ack{Cum: 3, Seg: 1, Sent: at + ms})
	if got = append(got, pump(s, at+2*ms)...); !slices.Equal(got, []uint64{0, 1, 3, 4, 5}) {
		t.Errorf("%v go", got)
	}
}

// The last ACK of a recovery leaves cwnd at the flight and a segment, so that
// slow start follows and no burst.
func TestRecoveryEndsWithoutBurst(t *testing.T) {
	s := windowOf10(func(c *config.Sender) {})
	for seg := uint64(1); seg < 4; seg++ {
		s.Ack(ms, &Ack{Seg: seg})
	}
	pump(s, ms) // 0 again
	s.Ack(2*ms, &Ack{Cum: 10, Seg: 0})
	if got := pump(s, 2*ms); len(got) != 1 || s.cwnd != 1 || s.ssthresh != 5 {
		t.Errorf("%v go, cwnd %v, ssthresh %v", got, s.cwnd, s.ssthresh)
	}
}
