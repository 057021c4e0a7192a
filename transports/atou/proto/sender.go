// Package proto is the protocol of atou, TCP's congestion control in whole
// segments: the datagrams, a sender and a receiver. It has no sockets and no
// clock; both ends are told the time, since the start of the transfer, and
// allocate nothing once made.
//
// The sender's loop is
//
//	for !s.Done(now) {
//		for seg, ok := s.Next(now); ok; seg, ok = s.Next(now) {
//			transmit it, unless seg.Drop
//			s.Sent(now, seg) // or s.Refused() and stop, when the kernel has no room
//		}
//		wait for an ACK or s.Deadline()
//		s.Ack(now, ack) or s.Timeout(now)
//	}
package proto

import (
	"math"
	"slices"
	"time"

	"dumbbell/transports/atou/config"
)

// A Segment is what a sender wants to transmit.
type Segment struct {
	Seg    uint64
	Resent bool
	Last   bool // no segment will follow this one
	Drop   bool // the drop list suppresses it: count it as sent, but do not transmit it
}

// A Sender is the sending end. Segments are numbered from 0 (the original's
// from 1, so that its good bytes count one segment that it never sent).
type Sender struct {
	// Observe, unless nil, is called with each event. It must not call the sender.
	Observe func(*Event)

	config config.Sender
	drops  []uint64 // of the drop list, those still to come
	stats  Stats
	sumRTT time.Duration // what stats.SumRTT lacks: less than 1 µs
	event  Event         // reused: an event does not escape to the heap
	timer  timer
	vegas  vegas
	board  scoreboard

	una, nxt, max  uint64
	cwnd, ssthresh float64
	slowFrom       float64 // cwnd at which limited slow start begins; 0: nowhere
	grownTo        float64 // cwnd at the last growth of congestion avoidance
	dups           uint64  // duplicate ACKs that count, since una advanced
	recovering     bool
	recover        uint64        // max at the begin of the recovery, or at the last time-out
	began          time.Duration // the recovery
	urgent         bool          // una is to be resent whatever the window
	halving        bool          // rampdown: the next ACK lowers cwnd
	prr            prr
	echoes         echoes
	burst          uint64 // segments sent since the last ACK or time-out
	sentAt         time.Duration
	departs        time.Duration // with a gap, when the next segment may leave
	held           bool          // until then
	busy, busyFrom time.Duration // how long segments were outstanding, and since when they are
}

// NewSender makes a sender at time 0 of its clock.
func NewSender(c config.Sender) *Sender {
	s := &Sender{
		config: c, drops: slices.Clone(c.DropList),
		timer:    timer{least: c.Timeout, tick: c.Tick},
		board:    newScoreboard(c.RcvrWin),
		ssthresh: max(2, c.ThreshInit*float64(c.RcvrWin)),
		echoes:   echoes{last: make([]time.Duration, c.DupThresh)},
	}
	if c.ThreshInit == 0 {
		s.ssthresh = math.Inf(1)
	}
	s.setCwnd(float64(c.InitSegs))
	s.resetSlowFrom()
	return s
}

func (s *Sender) resetSlowFrom() {
	s.slowFrom = 0
	if s.config.Floyd {
		s.slowFrom = float64(s.config.MaxSSThresh)
	}
}

// Stats returns counts and state.
func (s *Sender) Stats() Stats {
	st := s.stats
	st.SRTT, st.RTTVar = s.timer.srtt, s.timer.rttvar
	st.Nxt, st.Una, st.Max = s.nxt, s.una, s.max
	st.Cwnd, st.Ssthresh = int(s.cwnd), printedSsthresh(s.ssthresh)
	st.State, st.RTO, st.Backoff = s.state(), s.timer.rto(), s.timer.backoff
	st.Delivered = s.una + s.board.numSacked
	st.Sacked, st.Lost, st.Resent = s.board.numSacked, s.board.numLost, s.board.numResent
	return st
}

func (s *Sender) state() State {
	switch {
	case s.recovering:
		return Recovery
	case s.una < s.recover: // a recovery ends there, so this is a time-out's
		return Loss
	case s.dups > 0 || s.board.numSacked > 0:
		return Disorder
	}
	return Open
}

// Busy is for how long segments have been outstanding so far.
func (s *Sender) Busy(now time.Duration) time.Duration {
	if s.una < s.max {
		return s.busy + now - s.busyFrom
	}
	return s.busy
}

func printedSsthresh(v float64) int { return int(min(v, InfiniteSsthresh)) }

// Done reports whether the transfer has ended.
func (s *Sender) Done(now time.Duration) bool {
	return s.config.MaxPkts > 0 && s.una >= s.config.MaxPkts || s.config.MaxTime > 0 && now >= s.config.MaxTime
}

// Deadline is when to call Timeout, when a held segment may leave, or when the
// transfer ends; false if none of them is in sight.
func (s *Sender) Deadline() (at time.Duration, ok bool) {
	at = math.MaxInt64
	if s.timer.armed {
		at = s.timer.due
	}
	if s.held {
		at = min(at, s.departs)
	}
	if s.config.MaxTime > 0 {
		at = min(at, s.config.MaxTime)
	}
	return at, at < math.MaxInt64
}

// Held is when the segment may leave that Next did not tell for the gap's sake.
func (s *Sender) Held() (at time.Duration, ok bool) { return s.departs, s.held }

// observe tells of an event, with the values of now.
func (s *Sender) observe(kind Kind, now time.Duration, seg uint64, rtt time.Duration) {
	if s.Observe == nil {
		return
	}
	s.event = Event{
		Kind: kind, At: now, Seg: seg, RTT: rtt, Una: s.una, Nxt: s.nxt, Max: s.max, Recover: s.recover,
		Cwnd: int(s.cwnd), Ssthresh: printedSsthresh(s.ssthresh),
	}
	if s.config.SACK && s.recover > 0 { // the original named the last segment of the recovery there
		s.event.Recover--
	}
	s.Observe(&s.event)
}

// Next tells what to send now. Until Sent, it tells the same.
func (s *Sender) Next(now time.Duration) (Segment, bool) {
	seg, ok := s.next(now)
	s.held = ok && now < s.departs
	return seg, ok && !s.held
}

func (s *Sender) next(now time.Duration) (Segment, bool) {
	if s.Done(now) {
		return Segment{}, false
	}
	if s.urgent {
		return s.segment(s.una, true), true
	}
	if s.config.BurstLimit > 0 && s.burst >= uint64(s.config.BurstLimit) {
		return Segment{}, false
	}
	fresh := s.config.MaxPkts == 0 || s.max < s.config.MaxPkts
	if s.recovering && s.config.SACK { // NextSeg of RFC 6675; its rule (4), which is optional, is not here
		if s.board.pipe(s.max-s.una) >= uint64(s.cwnd) {
			return Segment{}, false
		}
		if seg, ok := s.board.nextHole(s.board.edge); ok {
			return s.segment(seg, true), true
		}
		if fresh && s.max < s.una+s.config.RcvrWin {
			return s.segment(s.max, false), true
		}
		seg, ok := s.board.nextHole(s.board.fack)
		return s.segment(seg, true), ok
	}
	s.restartIdle(now)
	window := uint64(s.cwnd)
	if !s.recovering { // limited transmit, RFC 3042, on each duplicate ACK that is not enough
		window += min(s.dups, uint64(s.config.DupThresh)-1)
	}
	end := s.una + min(window, s.config.RcvrWin)
	if s.nxt < s.max { // after a time-out; what is SACKed need not go again
		s.nxt = s.board.sacked.unset(s.nxt, s.max)
	}
	if s.nxt >= end || s.nxt == s.max && !fresh {
		return Segment{}, false
	}
	return s.segment(s.nxt, s.nxt < s.max), true
}

func (s *Sender) segment(seg uint64, resent bool) Segment {
	return Segment{
		Seg: seg, Resent: resent, Last: seg+1 == s.config.MaxPkts,
		Drop: !resent && len(s.drops) > 0 && s.drops[0] == seg,
	}
}

// restartIdle closes cwnd when nothing has been outstanding for long (RFC
// 2861): old ACKs no longer pace what is sent.
func (s *Sender) restartIdle(now time.Duration) {
	idle := time.Duration(s.config.MaxIdle * float64(s.timer.rto()))
	if s.config.MaxIdle == 0 || s.una < s.max || s.max == 0 || now-s.sentAt <= idle {
		return
	}
	s.ssthresh = max(s.ssthresh, 0.75*s.cwnd)
	s.setCwnd(min(s.cwnd, float64(s.config.InitSegs)))
	s.sentAt = now
}

// Refused counts a segment that the kernel had no room for. Next tells it
// again.
func (s *Sender) Refused() { s.stats.Enobufs++ }

// Sent takes note that a segment that Next told has left.
func (s *Sender) Sent(now time.Duration, seg Segment) {
	kind := Xmt
	switch {
	case seg.Drop:
		kind = Drop
	case seg.Resent:
		kind = Rxt
	}
	s.observe(kind, now, seg.Seg, 0)
	if gap := s.config.Gap; gap > 0 { // absolute times: what left late does not delay the rest, unless by a whole gap
		s.departs += gap
		if now >= s.departs {
			s.departs = now + gap
		}
	}
	if s.una == s.max {
		s.busyFrom = now
	}
	switch {
	case s.recovering && seg.Resent:
		if s.config.SACK {
			if !s.urgent {
				s.stats.Packs++
				s.observe(PackRxmit, now, seg.Seg, 0)
			}
			s.board.resend(now, seg.Seg)
		}
		if s.urgent {
			s.urgent = false
			s.timer.restart(now)
		}
	default:
		s.nxt++
		s.max = max(s.max, s.nxt)
	}
	s.prr.out++
	if seg.Resent {
		s.stats.Rxmts++
	}
	if seg.Drop {
		s.drops = s.drops[1:]
	}
	s.stats.Out++
	s.burst++
	s.stats.MaxBurst = max(s.stats.MaxBurst, s.burst)
	s.sentAt = now
	if !s.timer.armed {
		s.timer.restart(now)
	}
}

// Timeout looks at the timer. Unless it is due, nothing happens.
func (s *Sender) Timeout(now time.Duration) {
	if !s.timer.armed || now < s.timer.due {
		return
	}
	s.stats.Timeouts++
	s.observe(TimerRxmit, now, s.una, 0)
	if s.timer.backoff == 0 { // RFC 5681 (4): once for a segment
		w := s.cwnd
		if s.recovering { // without what duplicate ACKs have added
			w = min(w, s.ssthresh)
		}
		s.reduce(w)
	}
	s.setCwnd(1)
	s.nxt, s.recover = s.una, s.max
	s.recovering, s.urgent, s.dups, s.burst = false, false, 0, 0
	s.board.timeout(s.una)
	s.timer.backoff++
	s.timer.restart(now)
}
