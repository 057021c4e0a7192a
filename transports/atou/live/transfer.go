package live

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"dumbbell/transports/atou/proto"

	"golang.org/x/sys/unix"
)

const (
	refusedMax  = time.Second            // without an ACK since ICMP said that nobody is there: it is so
	refusedWait = 100 * time.Microsecond // before the host's queue is tried again

	spinTime  = 100 * time.Microsecond // before a departure: look for ACKs without sleeping
	quietTime = 10 * time.Microsecond  // before a departure: look at the clock only
)

func (s *sender) transfer(ctx context.Context) error {
	var ended atomic.Bool
	defer context.AfterFunc(ctx, func() { ended.Store(true) })()
	for s.now = 0; !s.core.Done(s.now); s.now = s.clock.now() {
		if ended.Load() {
			return fmt.Errorf("interrupted after %d segments: %w", s.core.Stats().Una, ctx.Err())
		}
		if s.now >= s.sampleAt {
			s.tell(s.now, false)
			s.sampleAt += (s.now-s.sampleAt)/s.config.Interval*s.config.Interval + s.config.Interval
		}
		if err := s.pump(); err != nil {
			return err
		}
		if s.take() {
			for s.blocked != 0 && s.out.Len() > 0 && s.take() { // a train that waits for room is not tried again at each ACK
			}
			continue
		}
		if err := s.flush(); err != nil {
			return err
		}
		if ready, err := s.wait(); err != nil {
			return err
		} else if ready {
			continue
		}
		s.now = s.clock.now()
		s.core.Timeout(s.now)
		if err := s.gone(); err != nil {
			return err
		}
	}
	return s.flush()
}

// pump sends all that may go now.
func (s *sender) pump() error {
	if s.blocked != 0 {
		s.blocked = 0
		if err := s.flush(); err != nil || s.blocked != 0 {
			return err
		}
	}
	for {
		seg, ok := s.core.Next(s.now)
		if !ok {
			s.due = 0
			if at, held := s.core.Held(); held {
				s.due = at
			}
			return nil
		}
		if !seg.Drop {
			s.data.Seg, s.data.Sent, s.data.Resent, s.data.Last = seg.Seg, s.now, seg.Resent, seg.Last
			s.data.Encode(s.out.Place())
			s.out.Add(s.data.Bytes)
			if s.out.Full() {
				if err := s.flush(); err != nil {
					return err
				}
				if s.blocked != 0 && s.out.Len() == 0 {
					return nil
				}
			}
		}
		if s.due > 0 {
			s.late.RecordValue(int64(min(s.now-s.due, lateMax)))
			s.due = 0
		}
		s.core.Sent(s.now, seg)
		if s.blocked != 0 {
			return nil
		}
		if s.out.Len() == 0 { // else they leave together
			s.now = s.clock.now()
		}
	}
}

// flush sends the train, if there is any. The kernel may refuse it: in precise
// mode it is then as if it had never been, in bulk mode pump tries it again.
func (s *sender) flush() error {
	for attempts := 0; s.out.Len() > 0 && s.blocked == 0; attempts++ {
		switch err := s.out.Send(); {
		case err == nil:
			s.path.Trains++
		case err == unix.EINTR:
		case err == unix.EAGAIN || err == unix.ENOBUFS:
			s.core.Refused()
			if s.config.Mode == Precise {
				s.out.Clear()
			}
			s.blocked = unix.POLLIN
			if err == unix.EAGAIN { // of the socket's own buffer it is told when it has room
				s.blocked |= unix.POLLOUT
			}
		case soft(err) || err == unix.EPERM:
			s.told(err)
			if attempts > 0 || err == unix.EPERM { // not of an earlier datagram: there is no way for this one, and it is lost
				s.out.Drop()
			}
		default:
			return fmt.Errorf("sending to %v: %w", s.config.To, err)
		}
	}
	return nil
}

// told takes note of what ICMP, or the host itself, says. Ways come back, and
// a receiver that has ended does not.
func (s *sender) told(err error) {
	s.path.Errors++
	s.reason = err
	if err == unix.ECONNREFUSED && s.refused == 0 {
		s.refused = s.clock.now()
	}
}

// take takes one ACK, if one has come.
func (s *sender) take() bool {
	b, at, ok := s.in.next()
	if !ok {
		return false
	}
	if s.ack.Decode(b) != nil || s.ack.ID != s.peer.id {
		// A receiver answers each message that opens a flow, also one that was sent again.
		if kind, _, _ := proto.Peek(b); kind != proto.TypeChallenge && kind != proto.TypeAccept {
			s.path.Foreign++
		}
		return true
	}
	s.heard, s.refused, s.reason = at, 0, nil
	s.core.Timeout(at) // what was due before the ACK came
	s.core.Ack(at, &s.ack)
	return true
}

// wait waits for ACKs, or until something is due, and reports whether there are
// any.
func (s *sender) wait() (ready bool, err error) {
	for look := s.clock.now() + lookWait; ; {
		ready, err := s.in.fill()
		switch {
		case ready:
			return true, nil
		case soft(err):
			s.told(err)
		case err != nil:
			return false, fmt.Errorf("receiving from %v: %w", s.config.To, err)
		}
		now := s.clock.now()
		until, departs := s.until(look)
		rest := until - now
		if rest <= 0 {
			return false, nil
		}
		s.poll[0].Events = unix.POLLIN
		if s.blocked != 0 {
			s.poll[0].Events = s.blocked
			rest = min(rest, refusedWait)
		} else if departs {
			if rest <= quietTime {
				for s.clock.now() < until {
				}
				return false, nil
			}
			if rest <= spinTime {
				continue
			}
			rest -= spinTime
		}
		ts := unix.NsecToTimespec(int64(rest))
		if _, err := unix.Ppoll(s.poll[:], &ts, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return false, fmt.Errorf("waiting for ACKs: %w", err)
		}
		if s.poll[0].Revents&unix.POLLERR != 0 {
			if err := takeErrors(s.peer.fd); err != nil {
				s.told(err)
			}
		}
		if s.blocked != 0 {
			return false, nil
		}
	}
}

// until is when wait has to return, at the latest at a time, and whether a
// departure is what is due then.
func (s *sender) until(latest time.Duration) (at time.Duration, departs bool) {
	at = min(latest, s.sampleAt)
	if due, ok := s.core.Deadline(); ok {
		at = min(at, due)
	}
	held, ok := s.core.Held()
	return at, ok && held == at
}

// gone is the error of a receiver that has been silent for too long.
func (s *sender) gone() error {
	silent := s.now - s.heard
	if silent < refusedMax && silent < s.config.Silence {
		return nil
	}
	st := s.core.Stats()
	if st.Una == st.Max { // nothing to acknowledge
		s.heard = s.now
		return nil
	}
	// The RTO without its backoff, which grows as the silence does.
	rto := max(s.config.Sender.Timeout, st.LongRTT())
	longest := max(s.config.Silence, 2*(rto+s.config.Sender.Tick))
	if silent < longest && (s.refused == 0 || s.now-s.refused < refusedMax) {
		return nil
	}
	said := "nothing says why"
	if s.reason == unix.EPERM {
		said = "the firewall of this host does not let segments out"
	} else if s.reason != nil {
		said = "ICMP says " + s.reason.Error()
	}
	return fmt.Errorf("the receiver at %v is gone: no ACK has come for %v, and %s; %d segments are acknowledged",
		s.config.To, silent.Round(time.Millisecond), said, st.Una)
}

// count brings up to date what the sockets count.
func (s *sender) count() {
	s.path.Drops = uint64(s.in.drops)
	s.path.GSO = s.config.Mode == Bulk && s.out.GSO
}

func (s *sender) tell(at time.Duration, final bool) {
	s.count()
	// An ACK that is taken after a sample may have arrived before it, and end the busy time there.
	busy := max(s.sample.Busy, s.core.Busy(at))
	s.sample = Sample{Time: s.clock.start.Add(at), Stats: s.core.Stats(), Busy: busy, Final: final, Path: s.path}
	s.config.Sample(&s.sample)
}
