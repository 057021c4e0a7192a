// Package sim runs a sender and a receiver of atou over an emulated path in
// virtual time. It is deterministic: what happens depends on the configuration
// and its seed alone. Datagrams are encoded and decoded as on a network.
package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"dumbbell/transports/atou/config"
	"dumbbell/transports/atou/proto"
)

// A Config describes a transfer.
type Config struct {
	Sender   config.Sender
	Receiver config.Receiver
	Forward  Path // of segments
	Back     Path // of ACKs
	Seed     uint64

	// Untrimmed, ACKs have room for all SACK blocks, as the original's first ones had.
	Untrimmed bool

	Observe func(*proto.Event)                   // of the sender; may be nil
	Queue   func(now time.Duration, waiting int) // called with the forward queue as each segment enters; may be nil

	// Sample, unless nil, is called at each multiple of Interval with the
	// sender's counts and the packets in the forward queue.
	Sample   func(at time.Duration, sender proto.Stats, waiting int)
	Interval time.Duration
}

// A Result is what became of a transfer.
type Result struct {
	Elapsed   time.Duration
	Sender    proto.Stats
	Receiver  proto.ReceiverStats
	Delivered uint64 // segments, to the receiver's application
	Forward   PathStats
	Back      PathStats
}

// GoodputBps is what was acknowledged, in bits of segments per second.
func (r *Result) GoodputBps(mss int) float64 {
	if r.Elapsed == 0 {
		return 0
	}
	return float64(r.Sender.Una) * float64(mss) * 8 / r.Elapsed.Seconds()
}

// longest is the largest maxtime: without one, time-outs could go on for ever.
const longest = 24 * time.Hour

// ErrStuck is a transfer in which nothing will ever happen again.
var ErrStuck = errors.New("the transfer cannot go on")

// Run runs a transfer to its end.
func Run(c Config) (Result, error) {
	if err := c.Sender.Check(); err != nil {
		return Result{}, err
	}
	if c.Sample != nil && c.Interval <= 0 {
		return Result{}, fmt.Errorf("samples are asked for, every %v", c.Interval)
	}
	s := &simulation{
		config:   c,
		sender:   proto.NewSender(c.Sender),
		receiver: proto.NewReceiver(c.Receiver, c.Sender.RcvrWin),
		forward:  newPath(c.Forward, rand.New(rand.NewPCG(c.Seed, 1))),
		back:     newPath(c.Back, rand.New(rand.NewPCG(c.Seed, 2))),
	}
	s.sender.Observe = c.Observe
	var now time.Duration
	for s.send(now); !s.sender.Done(now); s.send(now) {
		var err error
		if now, err = s.step(); err != nil {
			return Result{}, fmt.Errorf("at %v: %w", now, err)
		}
		if now > longest {
			return Result{}, fmt.Errorf("%d segments are acknowledged after %v: the transfer has no end", s.sender.Stats().Una, longest)
		}
	}
	s.sample(now + 1)
	return Result{
		Elapsed: now, Sender: s.sender.Stats(), Receiver: s.receiver.Stats(), Delivered: s.receiver.Delivered(),
		Forward: s.forward.stats, Back: s.back.stats,
	}, nil
}

type simulation struct {
	config        Config
	sender        *proto.Sender
	receiver      *proto.Receiver
	forward, back path
	events        events
	order         uint64
	spare         []*packet
	ack           proto.Ack
	sampled       time.Duration // when the next sample is due
}

// A packet is a datagram under way. Of a segment only the header is kept.
type packet struct {
	to      *path
	bytes   [proto.MaxAckBytes]byte
	size    int
	order   uint64 // of its event; one of another order is stale
	held    int    // datagrams still to overtake it
	waiting bool   // at the end of the path, for them
}

// send lets the sender send all it may.
func (s *simulation) send(now time.Duration) {
	for seg, ok := s.sender.Next(now); ok; seg, ok = s.sender.Next(now) {
		s.sender.Sent(now, seg)
		if seg.Drop {
			continue
		}
		p := s.packet()
		d := proto.Data{Seg: seg.Seg, Sent: now, Bytes: s.config.Sender.MSS, Resent: seg.Resent, Last: seg.Last}
		d.Encode(p.bytes[:])
		p.size = config.HeaderBytes
		if s.config.Queue != nil {
			s.config.Queue(now, s.forward.waiting(now))
		}
		s.transmit(now, &s.forward, p, d.Bytes)
	}
}

func (s *simulation) acknowledge(now time.Duration) {
	s.receiver.Ack(&s.ack)
	p := s.packet()
	p.size = s.ack.Encode(p.bytes[:])
	bytes := p.size
	if s.config.Untrimmed {
		bytes = proto.MaxAckBytes
	}
	s.transmit(now, &s.back, p, bytes)
}

// sample tells of the sender at all times before now that are due: between two
// steps nothing changes.
func (s *simulation) sample(now time.Duration) {
	for ; s.config.Sample != nil && s.sampled < now; s.sampled += s.config.Interval {
		s.config.Sample(s.sampled, s.sender.Stats(), s.forward.waiting(s.sampled))
	}
}

func (s *simulation) packet() *packet {
	if n := len(s.spare); n > 0 {
		p := s.spare[n-1]
		s.spare = s.spare[:n-1]
		return p
	}
	return &packet{}
}

func (s *simulation) transmit(now time.Duration, to *path, p *packet, bytes int) {
	p.to, p.waiting = to, false
	at, ok := to.enter(now, bytes)
	if !ok {
		s.spare = append(s.spare, p)
		return
	}
	if p.held = to.displacement(); p.held > 0 {
		to.stats.Overtaken++
	}
	if to.rng.Float64() < to.Duplicate {
		to.stats.Duplicated++
		twin := s.packet()
		*twin = *p
		twin.held = 0
		s.schedule(at, twin)
	}
	s.schedule(at, p)
}

func (s *simulation) schedule(at time.Duration, p *packet) {
	s.order++
	p.order = s.order
	s.events.push(event{at, s.order, p})
}

// step lets the next thing happen.
func (s *simulation) step() (now time.Duration, err error) {
	const (
		none = iota
		arrival
		senderTimer
		receiverTimer
	)
	next := none
	earlier := func(at time.Duration, ok bool, what int) {
		if ok && (next == none || at < now) {
			now, next = at, what
		}
	}
	if len(s.events) > 0 {
		earlier(s.events[0].at, true, arrival)
	}
	at, ok := s.receiver.Deadline()
	earlier(at, ok, receiverTimer)
	at, ok = s.sender.Deadline()
	earlier(at, ok, senderTimer)
	s.sample(now)
	switch next {
	case none:
		return now, ErrStuck
	case arrival:
		return now, s.leave(now, s.events.pop())
	case receiverTimer:
		s.acknowledge(now)
	case senderTimer:
		s.sender.Timeout(now)
	}
	return now, nil
}

// leave brings a datagram to the end of its path, where it may wait until
// others have overtaken it.
func (s *simulation) leave(now time.Duration, e event) error {
	p := e.packet
	if p.order != e.order {
		return nil
	}
	path := p.to
	if p.held > 0 && !p.waiting {
		p.waiting = true
		path.held = append(path.held, p)
		s.schedule(now+path.Hold, p)
		return nil
	}
	if p.waiting { // too few have come
		path.held = slices.DeleteFunc(path.held, func(q *packet) bool { return q == p })
		return s.arrive(now, p)
	}
	if err := s.arrive(now, p); err != nil {
		return err
	}
	for i := 0; i < len(path.held); {
		late := path.held[i]
		if late.held--; late.held > 0 {
			i++
			continue
		}
		path.held = slices.Delete(path.held, i, i+1)
		if err := s.arrive(now, late); err != nil {
			return err
		}
	}
	return nil
}

func (s *simulation) arrive(now time.Duration, p *packet) error {
	p.order = 0
	s.spare = append(s.spare, p)
	if p.to == &s.back {
		if err := s.ack.Decode(p.bytes[:p.size]); err != nil {
			return fmt.Errorf("decoding an ACK: %w", err)
		}
		s.sender.Ack(now, &s.ack)
		return nil
	}
	var d proto.Data
	if err := d.Decode(p.bytes[:p.size]); err != nil {
		return fmt.Errorf("decoding a segment: %w", err)
	}
	if s.receiver.Data(now, &d) {
		s.acknowledge(now)
	}
	return nil
}
