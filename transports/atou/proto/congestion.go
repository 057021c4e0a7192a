package proto

import "math"

// HighSpeed TCP of RFC 3649: below lowWindow it is Reno; at highWindow it
// sustains one loss in 10^7 segments and gives up a tenth of its window. Linux
// has RFC 3649's table of windows at which the growth is whole, and looks into
// it in congestion avoidance only: the loss that ends slow start takes a half.
const (
	lowWindow    = 38
	highWindow   = 83000
	highDecrease = 0.1
	lastWindow   = 89053 // of the table; far above it a(w) falls again, and b(w) below 0
)

// highSpeedB is the share of a window of w segments that a loss takes: b(w).
func highSpeedB(w float64) float64 {
	w = min(w, lastWindow)
	if w <= lowWindow {
		return 0.5
	}
	return (highDecrease-0.5)*(math.Log(w)-math.Log(lowWindow))/(math.Log(highWindow)-math.Log(lowWindow)) + 0.5
}

// highSpeedA is the growth of a window of w segments in an RTT: a(w).
func highSpeedA(w float64) float64 {
	w = min(w, lastWindow)
	if w <= lowWindow {
		return 1
	}
	p, b := 0.078/math.Pow(w, 1.2), highSpeedB(w)
	return max(1, w*w*p*2*b/(2-b))
}

// highSpeedStep is the window of the table that is w or the next above it, if
// there is any.
func highSpeedStep(w float64) float64 {
	whole := math.Ceil(highSpeedA(w))
	for w < lastWindow && highSpeedA(w) < whole {
		w++
	}
	return w
}

// Scalable TCP of Kelly: below its least window it is Reno. Linux has no such
// window, and grows by at least a segment per RTT.
const (
	scalableWindow   = 16
	scalableIncrease = 0.01 // segments per ACK
	scalableDecrease = 0.125
)

// perRTT is the growth of cwnd in an RTT of congestion avoidance, if each
// segment is acknowledged by itself.
func (s *Sender) perRTT() float64 {
	switch {
	case s.config.HighSpeed && s.cwnd > lowWindow:
		if s.config.Linux {
			return math.Ceil(highSpeedA(s.cwnd))
		}
		return highSpeedA(s.cwnd)
	case s.config.Scalable && s.config.Linux:
		return max(float64(s.config.Increment), scalableIncrease*s.cwnd)
	case s.config.Scalable && s.cwnd > scalableWindow:
		return scalableIncrease * s.cwnd
	}
	return float64(s.config.Increment)
}

// decrease makes the ssthresh of a loss at a window of w segments.
func (s *Sender) decrease(w float64) float64 {
	factor, at := s.config.Multiplier, w
	if s.config.HighSpeed && s.config.Linux {
		at = highSpeedStep(s.grownTo)
	}
	switch {
	case s.config.HighSpeed && at > lowWindow:
		factor = 1 - highSpeedB(at)
	case s.config.Scalable && (w > scalableWindow || s.config.Linux):
		factor = 1 - scalableDecrease
	}
	return max(2, w*factor)
}

// grow opens cwnd for an ACK of n new segments. The original counted ACKs, as
// RFC 5681 still allows, so delayed ACKs halve the growth.
func (s *Sender) grow(n uint64) {
	if s.cwnd >= s.ssthresh {
		if s.config.Vegas { // once per RTT, in vegas.go
			return
		}
		if !s.config.ABC || s.config.HighSpeed && s.config.Linux {
			n = 1
		}
		s.grownTo = s.cwnd
		s.setCwnd(s.cwnd + float64(n)*s.perRTT()/s.cwnd)
		return
	}
	if s.config.Vegas && s.vegas.rounds%s.config.VegasSS != 0 {
		return
	}
	credit := 1.0
	if s.config.ABC {
		credit = float64(min(n, 2)) // RFC 3465's L
	}
	incr := float64(s.config.SSIncr)
	if s.slowFrom > 0 && s.cwnd > s.slowFrom { // RFC 3742: at most slowFrom/2 in an RTT
		incr = 1 / math.Floor(s.cwnd/(0.5*s.slowFrom))
	}
	s.setCwnd(min(s.cwnd+credit*incr, s.ssthresh))
}

// setCwnd keeps cwnd within 1 and the receiver's window, as the original did:
// its cwnd ends at rcvrwin.
func (s *Sender) setCwnd(w float64) { s.cwnd = min(max(w, 1), float64(s.config.RcvrWin)) }
