package proto

import (
	"math"
	"time"
)

func (s *Sender) enterRecovery(now time.Duration) {
	s.stats.Dup3s++
	if s.config.SACK { // the original told the new end of the recovery here, but without SACK the last one
		s.recover = s.max
	}
	s.observe(DupRxmit, now, s.una, 0)
	if s.config.NewReno {
		s.recover = s.max
	}
	s.prr = prr{prior: s.cwnd}
	s.reduce(s.cwnd)
	s.recovering, s.began, s.halving = true, now, false
	s.urgent = !(s.config.Reloss && s.board.resent.has(s.una)) // what went again in the last recovery may be under way
	switch {
	case !s.config.SACK:
		s.setCwnd(s.ssthresh + float64(s.config.DupThresh))
		return
	case !s.config.Rampdown && !s.config.PRR:
		s.setCwnd(s.ssthresh)
	}
	s.board.markLost(s.una, uint64(s.config.DupThresh), s.config.FACK)
	s.board.lose(s.una)
	s.board.hole = s.una
}

// reduce sets ssthresh after a loss at a window of w segments.
func (s *Sender) reduce(w float64) {
	s.ssthresh = s.decrease(w)
	s.resetSlowFrom()
}

// ramp lowers cwnd by a segment at every second ACK of a recovery. As in the
// original's excerpt, what is found lost makes room for as much at once.
func (s *Sender) ramp() {
	if s.halving {
		s.setCwnd(max(s.ssthresh, s.cwnd-1))
	}
	s.halving = !s.halving
}

// prr are the counts of RFC 6937 in a recovery.
type prr struct {
	prior          float64 // cwnd before
	delivered, out uint64
}

// proportion is RFC 6937 at an ACK of so many more segments delivered; healthy,
// it is one of new segments that finds nothing lost.
func (s *Sender) proportion(delivered uint64, healthy bool) {
	if delivered == 0 {
		return
	}
	s.prr.delivered += delivered
	pipe := float64(s.board.pipe(s.max - s.una))
	total, out := float64(s.prr.delivered), float64(s.prr.out)
	var count float64
	if pipe > s.ssthresh {
		count = math.Ceil(total*s.ssthresh/s.prr.prior) - out
	} else {
		if count = max(total-out, float64(delivered)); healthy {
			count++
		}
		count = min(count, s.ssthresh-pipe)
	}
	s.setCwnd(pipe + max(count, 0))
}

// echoes are when the segments left that the last ACKs told of, a ring of as
// many as mean a loss.
type echoes struct {
	last []time.Duration
	next int // the oldest
}

func (e *echoes) push(sent time.Duration) {
	e.last[e.next] = sent
	e.next = (e.next + 1) % len(e.last)
}
