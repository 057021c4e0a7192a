package proto

import (
	"time"

	"dumbbell/transports/atou/config"
)

// ReceiverStats are a receiver's counts since its first segment.
type ReceiverStats struct {
	Arrived      uint64        // segments, duplicates included
	Received     uint64        // distinct segments
	Bytes        uint64        // of distinct segments
	AcksSent     uint64        // ACKs
	Missing      uint64        // segments that had not arrived when a later one did: lost, or late
	Duplicates   uint64        // second and further copies
	Displacement uint64        // by how many segments a first transmission was overtaken at most (RFC 4737's extent)
	Beyond       uint64        // segments beyond the window, dropped; a sender of this package sends none
	Elapsed      time.Duration // from the first to the last distinct segment
}

// A Receiver acknowledges segments. It needs no clock but the time it is told.
type Receiver struct {
	config config.Receiver
	window uint64
	stats  ReceiverStats
	first  time.Duration // arrival of the first segment

	cum    uint64 // all segments below have arrived
	next   uint64 // one above the highest that has arrived
	got    ring   // of cum to cum+window-1
	recent [MaxBlocks]uint64
	blocks int // of recent: segments above cum, each of another run, last arrival first

	unacked int           // in-order segments since the last ACK
	due     time.Duration // of the delayed ACK, if there are any
	cause   Data          // last arrival
	arrived time.Duration
}

// NewReceiver makes a receiver for a sender of a window of so many segments.
func NewReceiver(c config.Receiver, window uint64) *Receiver {
	return &Receiver{config: c, window: window, got: newRing(window)}
}

// Stats returns the counts.
func (r *Receiver) Stats() ReceiverStats { return r.stats }

// Delivered is how many segments the application has, in order, each once.
func (r *Receiver) Delivered() uint64 { return r.cum }

// Data takes a segment that has arrived, and reports whether an ACK must leave
// now. If not, Deadline tells when.
func (r *Receiver) Data(now time.Duration, d *Data) (ack bool) {
	seg := d.Seg
	if seg >= r.cum+r.window {
		r.stats.Beyond++
		return false
	}
	if r.stats.Arrived == 0 {
		r.first = now
	}
	r.stats.Arrived++
	r.cause, r.arrived = *d, now
	if seg < r.cum || r.got.has(seg) {
		r.stats.Duplicates++
		if seg > r.cum {
			r.report(seg)
		}
		return true
	}
	r.stats.Received++
	r.stats.Bytes += uint64(d.Bytes)
	r.stats.Elapsed = now - r.first
	if seg >= r.next {
		r.stats.Missing += seg - r.next
		r.next = seg + 1
	} else if !d.Resent {
		r.stats.Displacement = max(r.stats.Displacement, r.next-1-seg)
	}
	r.got.set(seg)
	if seg > r.cum { // RFC 5681: out of order is acknowledged at once
		r.report(seg)
		return true
	}
	end := r.got.unset(r.cum, r.next)
	for ; r.cum < end; r.cum++ {
		r.got.clear(r.cum)
	}
	if end > seg+1 || r.next > end { // so is what fills a gap
		return true
	}
	r.unacked++
	if r.config.DelAck == 0 || r.unacked >= 2 {
		return true
	}
	r.due = now + r.config.DelAck
	return false
}

// report puts the run of a segment before those of earlier arrivals, as RFC
// 2018 wants the blocks of an ACK.
func (r *Receiver) report(seg uint64) {
	run := r.run(seg)
	kept := [MaxBlocks]uint64{seg}
	n := 1
	for _, other := range r.recent[:r.blocks] {
		if n < MaxBlocks && other > r.cum && (other < run.Start || other >= run.End) {
			kept[n] = other
			n++
		}
	}
	r.recent, r.blocks = kept, n
}

// run is the whole run of segments around one.
func (r *Receiver) run(seg uint64) Block {
	return Block{r.got.unsetBelow(r.cum, seg), r.got.unset(seg, r.next)}
}

// Deadline is when a delayed ACK must leave, if there is one.
func (r *Receiver) Deadline() (at time.Duration, ok bool) { return r.due, r.unacked > 0 }

// Ack fills in the ACK that leaves now, whether or not one is due.
func (r *Receiver) Ack(a *Ack) {
	*a = Ack{
		ID: r.cause.ID, Cum: r.cum, Seg: r.cause.Seg, Sent: r.cause.Sent, Arrived: r.arrived,
		Received: uint32(r.stats.Received), Duplicates: uint32(r.stats.Duplicates),
		Displacement: uint16(min(r.stats.Displacement, 65535)),
	}
	if r.config.SACK {
		for _, seg := range r.recent[:r.blocks] {
			if seg > r.cum {
				a.Blocks[a.NumBlocks] = r.run(seg)
				a.NumBlocks++
			}
		}
	}
	r.unacked = 0
	r.stats.AcksSent++
}
