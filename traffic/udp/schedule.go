package udp

import (
	"errors"
	"fmt"
	"time"

	"dumbbell/traffic/socket"
)

// A Step is a rate from a moment on, until the next step.
type Step struct {
	At      time.Duration `json:"at_ns"`    // from the start of the flow
	RateBps int64         `json:"rate_bps"` // payload bits/s; 0 is silence
}

// A Schedule says when datagrams leave.
type Schedule struct {
	Steps    []Step        // in order of time; before the first there is silence
	Duration time.Duration // nothing leaves from here on
	Size     int           // payload bytes of a datagram
}

// MaxRateBps keeps the arithmetic of a schedule within 64 bits.
const MaxRateBps = 1_000_000_000_000

// MaxSize is the largest payload that IPv4 carries in one datagram.
const MaxSize = socket.MaxDatagram

// Check returns all that is wrong with a schedule.
func (s Schedule) Check() error {
	var problems []error
	if s.Duration <= 0 {
		problems = append(problems, fmt.Errorf("the duration must be positive, is %v", s.Duration))
	}
	if s.Size < HeaderBytes || s.Size > MaxSize {
		problems = append(problems, fmt.Errorf("a datagram has %d to %d bytes, not %d", HeaderBytes, MaxSize, s.Size))
	}
	if len(s.Steps) == 0 {
		problems = append(problems, errors.New("there is no rate"))
	}
	for i, step := range s.Steps {
		if step.RateBps < 0 || step.RateBps > MaxRateBps {
			problems = append(problems, fmt.Errorf("step %d: the rate must be 0 to %d bit/s, is %d", i, int64(MaxRateBps), step.RateBps))
		}
		if step.At < 0 || i > 0 && step.At <= s.Steps[i-1].At {
			problems = append(problems, fmt.Errorf("step %d: %v is not after what goes before", i, step.At))
		}
	}
	return errors.Join(problems...)
}

// MaxRate is the highest rate of the schedule in bits/s.
func (s Schedule) MaxRate() (bps int64) {
	for _, step := range s.Steps {
		bps = max(bps, step.RateBps)
	}
	return bps
}

// First is when the first datagram leaves, from the start of the flow; the
// duration if none does.
func (s Schedule) First() time.Duration {
	p := newPacer(s)
	if at, ok := p.next(); ok {
		return at
	}
	return s.Duration
}

// A pacer lists the departures of a schedule: datagram n leaves as soon as the
// rate, integrated over time, is n times the size of a datagram. What a step
// leaves of a datagram is owed by the next one, so no rounding adds up.
type pacer struct {
	schedule Schedule
	step     int           // of the next departure; -1 before the first
	at       time.Duration // departure of the datagram before
	owed     int64         // bits times ns to go from there to the next one
}

func newPacer(s Schedule) pacer { return pacer{schedule: s, step: -1} }

// next returns the next departure from the start of the flow, rounded down to
// a nanosecond, or false at the end of the schedule.
func (p *pacer) next() (at time.Duration, ok bool) {
	for {
		var rate int64
		end := p.schedule.Duration
		if p.step >= 0 {
			rate = p.schedule.Steps[p.step].RateBps
		}
		if p.step+1 < len(p.schedule.Steps) {
			end = min(end, p.schedule.Steps[p.step+1].At)
		}
		if rate > 0 && time.Duration(p.owed/rate) < end-p.at {
			p.at += time.Duration(p.owed / rate)
			p.owed = p.owed%rate + int64(p.schedule.Size)*8*int64(time.Second)
			return p.at, true
		}
		if end == p.schedule.Duration {
			return 0, false
		}
		p.owed -= int64(end-p.at) * rate // not below 0: as many bits times ns as the step has left
		p.at = end
		p.step++
	}
}
