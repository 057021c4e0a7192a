package proto

import (
	"time"
)

// Ack takes an ACK. Afterwards Next tells what it lets go.
func (s *Sender) Ack(now time.Duration, a *Ack) {
	s.stats.In++
	s.burst = 0
	if a.Cum < s.una || a.Cum > s.max {
		s.stats.BadAcks++
		s.observe(BadAck, now, a.Cum, 0)
		return
	}
	rtt := now - a.Sent
	if rtt > 0 { // otherwise no segment of this sender
		s.sample(rtt)
		s.echoes.push(a.Sent)
	}
	una, recovering, delivered, found := s.una, s.recovering, s.una+s.board.numSacked, s.board.found
	if s.config.SACK {
		for _, block := range a.Blocks[:a.NumBlocks] {
			if block.Start >= a.Cum && block.End <= s.max {
				s.board.sack(Block{max(block.Start, s.una), block.End})
			}
		}
	}
	if a.Cum > s.una {
		s.advance(now, a)
	} else if s.una < s.max {
		s.duplicate(now, a)
	}
	if s.recovering && s.config.SACK {
		if s.config.Reloss {
			s.board.loseResent(s.una, s.echoes.last[s.echoes.next])
		}
		switch {
		case s.config.PRR:
			s.proportion(s.una+s.board.numSacked-delivered, s.una > una && s.board.found == found)
		case s.config.Rampdown && recovering:
			s.ramp()
		}
	}
	s.observe(AckIn, now, a.Cum, rtt)
}

func (s *Sender) sample(rtt time.Duration) {
	s.timer.sample(rtt)
	s.vegas.sample(rtt)
	if s.stats.RTTs == 0 || rtt < s.stats.MinRTT {
		s.stats.MinRTT = rtt
	}
	s.stats.MaxRTT = max(s.stats.MaxRTT, rtt)
	s.stats.LastRTT = rtt
	s.sumRTT += rtt
	s.stats.SumRTT += s.sumRTT.Microseconds()
	s.sumRTT %= time.Microsecond
	s.stats.RTTs++
}

// advance takes an ACK of new segments.
func (s *Sender) advance(now time.Duration, a *Ack) {
	to := a.Cum
	n := to - s.una
	s.stats.MaxAck = max(s.stats.MaxAck, n)
	full := !s.recovering || to >= s.recover || !s.config.NewReno && !s.config.SACK
	if !full && !s.config.SACK {
		s.stats.Packs++
		s.observe(PackRxmit, now, to, 0)
	}
	s.board.advance(s.una, to)
	s.una, s.nxt = to, max(s.nxt, to)
	s.dups, s.timer.backoff = 0, 0
	if s.timer.armed = s.una < s.max; s.timer.armed {
		s.timer.restart(now)
	} else {
		s.busy += now - s.busyFrom
	}
	switch {
	case !s.recovering:
		s.grow(n)
	case full: // RFC 6582: no more than a segment above the flight, so that no burst follows
		s.recovering, s.urgent = false, false
		if s.setCwnd(min(s.ssthresh, float64(s.max-s.una)+1)); s.config.PRR { // the flight is about that already
			s.setCwnd(s.ssthresh)
		}
		s.vegas.next(s.max) // no part of the recovery belongs to a round
	case s.config.SACK:
		s.board.markLost(s.una, uint64(s.config.DupThresh), s.config.FACK)
		// Nothing is SACKed: as NewReno. To Reloss a partial ACK of what left before tells nothing of una.
		if s.board.numSacked == 0 && !s.board.resent.has(s.una) && (!s.config.Reloss || a.Sent >= s.began) {
			s.stats.Packs++
			s.observe(PackRxmit, now, s.una, 0)
			s.board.lose(s.una)
			s.urgent = true
		}
	default:
		s.setCwnd(s.cwnd - float64(n) + 1)
		s.urgent = true
	}
	// Linux' rounds end with the first ACK beyond, so that they begin where windows do.
	if s.una > s.vegas.end || s.una == s.vegas.end && !s.config.Linux {
		if s.config.Vegas && s.vegas.n > 0 && !s.recovering {
			s.vegasRound(n)
		}
		s.vegas.next(s.max)
	}
}

// duplicate takes an ACK of nothing new while segments are outstanding.
func (s *Sender) duplicate(now time.Duration, a *Ack) {
	s.stats.Dups++
	if a.Seg < s.una { // a second copy of something old caused it: it says nothing of a loss
		return
	}
	s.dups++
	if s.recovering {
		if !s.config.SACK {
			s.setCwnd(s.cwnd + 1)
			return
		}
		s.board.markLost(s.una, uint64(s.config.DupThresh), s.config.FACK)
		return
	}
	threshold := uint64(s.config.DupThresh)
	enough := s.dups >= threshold
	if s.config.SACK {
		s.board.markLost(s.una, threshold, false)
		enough = enough || s.board.lost.has(s.una) || s.config.FACK && s.board.fack-s.una > threshold
	}
	// Duplicates of what was outstanding at a time-out are no news (RFC 6582, 4).
	if enough && s.una >= s.recover {
		s.enterRecovery(now)
	}
}
