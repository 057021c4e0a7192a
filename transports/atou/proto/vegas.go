package proto

import (
	"time"

	"dumbbell/transports/atou/config"
)

// vegas measures rounds. A round ends when what was next at its begin is
// acknowledged.
type vegas struct {
	base      time.Duration // least RTT ever
	min, max  time.Duration // of the round, as all below
	last, sum time.Duration
	n         int
	end       uint64
	rounds    int
}

func (v *vegas) sample(rtt time.Duration) {
	if v.base == 0 || rtt < v.base {
		v.base = rtt
	}
	if v.n == 0 || rtt < v.min {
		v.min = rtt
	}
	v.max = max(v.max, rtt)
	v.last = rtt
	v.sum += rtt
	v.n++
}

// rtt of the round.
func (v *vegas) rtt(kind config.RTTKind) time.Duration {
	switch kind {
	case config.RTTMin:
		return v.min
	case config.RTTMax:
		return v.max
	case config.RTTAvg:
		return v.sum / time.Duration(v.n)
	}
	return v.last
}

func (v *vegas) next(end uint64) {
	*v = vegas{base: v.base, end: end, rounds: v.rounds + 1}
}

// vegasSamples is how many RTTs Linux wants of a round, lest all of them have a
// delayed ACK in them.
const vegasSamples = 3

// vegasRound ends a round with an ACK of n segments. Delta, by how many
// segments the window is larger than what base and the actual rate ask for, is
// what stands in the queue.
func (s *Sender) vegasRound(n uint64) {
	if s.config.Linux && s.vegas.n < vegasSamples {
		if s.cwnd >= s.ssthresh { // slow start has grown already
			s.setCwnd(s.cwnd + float64(n)*s.perRTT()/s.cwnd)
		}
		return
	}
	rtt := s.vegas.rtt(s.config.VegasRTT)
	delta := s.cwnd * float64(rtt-s.vegas.base) / float64(rtt)
	switch {
	case s.cwnd < s.ssthresh:
		if delta <= float64(s.config.Gamma) {
			break
		}
		if !s.config.VegasFloyd { // back to the window of the actual rate, as the kernel has it
			s.setCwnd(max(2, s.cwnd-delta+1))
			s.ssthresh = s.cwnd
		} else if s.slowFrom == 0 || s.cwnd < s.slowFrom { // with floyd it begins at max_ssthresh at the latest
			s.slowFrom = s.cwnd
		}
	case delta < float64(s.config.Alpha):
		s.setCwnd(s.cwnd + s.perRTT())
	case delta > float64(s.config.Beta):
		s.setCwnd(max(2, s.cwnd-1))
		s.ssthresh = min(s.ssthresh, s.cwnd) // it is not slow start
	}
}
