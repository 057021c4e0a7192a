package proto

import "time"

// A scoreboard knows what became of the outstanding segments, as RFC 6675 has
// it. Its work per ACK is in the number of segments that change.
type scoreboard struct {
	sacked, lost, resent          ring
	numSacked, numLost, numResent uint64
	fack                          uint64 // one above the highest SACKed segment
	edge                          uint64 // below it, what is not SACKed is lost
	hole                          uint64 // below it, what is lost has been resent
	found                         uint64 // losses, of what was resent too
	again                         resends
}

func newScoreboard(window uint64) scoreboard {
	return scoreboard{
		sacked: newRing(window), lost: newRing(window), resent: newRing(window), again: resends{entries: make([]resend, window)},
	}
}

// advance forgets the segments una to to-1.
func (b *scoreboard) advance(una, to uint64) {
	for seg := una; seg < to; seg++ {
		if b.sacked.clear(seg) {
			b.numSacked--
		}
		b.forget(seg)
	}
	b.fack, b.edge, b.hole = max(b.fack, to), max(b.edge, to), max(b.hole, to)
}

// forget drops the marks of loss and retransmission.
func (b *scoreboard) forget(seg uint64) {
	if b.lost.clear(seg) {
		b.numLost--
	}
	if b.resent.clear(seg) {
		b.numResent--
	}
}

// sack marks the segments of a block.
func (b *scoreboard) sack(block Block) {
	for seg := b.sacked.unset(block.Start, block.End); seg < block.End; seg = b.sacked.unset(seg, block.End) {
		b.sacked.set(seg)
		b.numSacked++
		b.forget(seg)
	}
	b.fack = max(b.fack, block.End)
}

func (b *scoreboard) lose(seg uint64) {
	if !b.sacked.has(seg) && b.lost.set(seg) {
		b.numLost++
		b.found++
	}
}

// markLost takes as lost what dupThresh SACKed segments have overtaken (IsLost
// of RFC 6675) or, with forward, all that any has (Mathis and Mahdavi's FACK).
func (b *scoreboard) markLost(una, dupThresh uint64, forward bool) {
	to := b.fack
	if !forward {
		if b.numSacked < dupThresh {
			return
		}
		for n := uint64(0); n < dupThresh; {
			if to--; b.sacked.has(to) {
				n++
			}
		}
	}
	for b.edge = max(b.edge, una); b.edge < to; b.edge++ {
		b.lose(b.edge)
	}
}

// pipe is how many of the outstanding segments are in the network.
func (b *scoreboard) pipe(outstanding uint64) uint64 {
	return outstanding + b.numResent - b.numSacked - b.numLost
}

// nextHole is the first segment below to that is neither SACKed nor resent.
func (b *scoreboard) nextHole(to uint64) (seg uint64, ok bool) {
	for b.hole < to && (b.sacked.has(b.hole) || b.resent.has(b.hole)) {
		b.hole++
	}
	return b.hole, b.hole < to
}

func (b *scoreboard) resend(now time.Duration, seg uint64) {
	if b.resent.set(seg) {
		b.numResent++
		b.again.push(resend{seg, now})
	}
}

// loseResent takes as lost once more what was resent before a time, and has not
// arrived.
func (b *scoreboard) loseResent(una uint64, before time.Duration) {
	for seg, ok := b.again.popBefore(before); ok; seg, ok = b.again.popBefore(before) {
		if seg >= una && b.resent.clear(seg) {
			b.numResent--
			b.found++
			b.hole = min(b.hole, seg)
		}
	}
}

// timeout forgets what was lost and resent: all that is not SACKed is sent
// again.
func (b *scoreboard) timeout(una uint64) {
	clear(b.lost)
	clear(b.resent)
	b.numLost, b.numResent, b.edge, b.hole = 0, 0, una, una
	b.again.length = 0
}

// A resend is a segment that went again, and when.
type resend struct {
	seg uint64
	at  time.Duration
}

// resends are those of a recovery in the order in which they left, a ring of
// as many as a window has.
type resends struct {
	entries       []resend
	first, length int
}

// push forgets the first one if there is no room.
func (r *resends) push(entry resend) {
	if r.length == len(r.entries) {
		r.pop()
	}
	r.entries[(r.first+r.length)%len(r.entries)] = entry
	r.length++
}

func (r *resends) pop() {
	r.first = (r.first + 1) % len(r.entries)
	r.length--
}

// popBefore takes the first one, if it left before a time.
func (r *resends) popBefore(before time.Duration) (seg uint64, ok bool) {
	if r.length == 0 || r.entries[r.first].at >= before {
		return 0, false
	}
	defer r.pop()
	return r.entries[r.first].seg, true
}
