package proto

// A scoreboard knows what became of the outstanding segments, as RFC 6675 has
// it. Its work per ACK is in the number of segments that change.
type scoreboard struct {
	sacked, lost, resent          ring
	numSacked, numLost, numResent uint64
	fack                          uint64 // one above the highest SACKed segment
	edge                          uint64 // below it, what is not SACKed is lost
	hole                          uint64 // below it, what is lost has been resent
}

func newScoreboard(window uint64) scoreboard {
	return scoreboard{sacked: newRing(window), lost: newRing(window), resent: newRing(window)}
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

func (b *scoreboard) resend(seg uint64) {
	if b.resent.set(seg) {
		b.numResent++
	}
}

// timeout forgets what was lost and resent: all that is not SACKed is sent
// again.
func (b *scoreboard) timeout(una uint64) {
	clear(b.lost)
	clear(b.resent)
	b.numLost, b.numResent, b.edge, b.hole = 0, 0, una, una
}
