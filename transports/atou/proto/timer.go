package proto

import "time"

// maxRTO bounds the retransmission time-out, as RFC 6298 (2.5) allows.
const maxRTO = 64 * time.Second

// A timer is the retransmission timer of RFC 6298.
type timer struct {
	least, tick  time.Duration
	srtt, rttvar time.Duration
	sampled      bool
	backoff      int // time-outs since the last new ACK
	armed        bool
	due          time.Duration
}

func (t *timer) sample(rtt time.Duration) {
	if !t.sampled {
		t.sampled, t.srtt, t.rttvar = true, rtt, rtt/2
		return
	}
	t.rttvar += ((t.srtt - rtt).Abs() - t.rttvar) / 4
	t.srtt += (rtt - t.srtt) / 8
}

func longRTT(srtt, rttvar time.Duration) time.Duration { return srtt + 4*rttvar }

// rto is the time-out with its backoff.
func (t *timer) rto() time.Duration {
	rto := t.least
	if t.sampled {
		rto = max(rto, longRTT(t.srtt, t.rttvar))
	}
	for i := 0; i < t.backoff && rto < maxRTO; i++ {
		rto *= 2
	}
	return min(rto, maxRTO)
}

// restart arms the timer. A sender that looks at its timer once a tick sees it
// at the first tick after the time-out.
func (t *timer) restart(now time.Duration) {
	t.armed, t.due = true, now+t.rto()
	if t.tick > 0 {
		t.due = (t.due + t.tick - 1) / t.tick * t.tick
	}
}
