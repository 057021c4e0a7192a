package proto

import "math/bits"

// A ring holds one bit for each segment of a window that moves upwards. Its
// length is a power of two of at least 64, and a window is never longer.
type ring []uint64

// newRing makes a ring for a window of n segments.
func newRing(n uint64) ring { return make(ring, max(64, 1<<bits.Len64(n-1))/64) }

func (r ring) place(seg uint64) (word *uint64, bit uint64) {
	return &r[seg/64%uint64(len(r))], 1 << (seg % 64)
}

func (r ring) has(seg uint64) bool {
	word, bit := r.place(seg)
	return *word&bit != 0
}

// set reports whether the bit was clear.
func (r ring) set(seg uint64) bool {
	word, bit := r.place(seg)
	was := *word&bit != 0
	*word |= bit
	return !was
}

// clear reports whether the bit was set.
func (r ring) clear(seg uint64) bool {
	word, bit := r.place(seg)
	was := *word&bit != 0
	*word &^= bit
	return was
}

// unset is the first segment of from..to-1 whose bit is clear, or to.
func (r ring) unset(from, to uint64) uint64 {
	for from < to {
		word, _ := r.place(from)
		ones := uint64(bits.TrailingZeros64(^(*word >> (from % 64))))
		if from += min(ones, 64-from%64); from%64 != 0 || ones == 0 {
			break
		}
	}
	return min(from, to)
}

// unsetBelow is the segment above the last one of from..to-1 whose bit is
// clear, or from.
func (r ring) unsetBelow(from, to uint64) uint64 {
	for to > from {
		last := to - 1
		word, _ := r.place(last)
		ones := uint64(bits.LeadingZeros64(^(*word << (63 - last%64))))
		if to -= min(ones, last%64+1); to%64 != 0 || ones == 0 {
			break
		}
	}
	return max(from, to)
}
