package udp

import (
	"math/rand/v2"
	"testing"
)

// TestSequences loses, duplicates and permutes, and compares with a count that
// remembers everything.
func TestSequences(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var arrivals []uint64
		n := uint64(1 + rng.IntN(3000))
		loss, copies, reach := rng.Float64()/2, rng.Float64()/4, 1+rng.IntN(500)
		for sequence := range n {
			for rng.Float64() >= loss {
				arrivals = append(arrivals, sequence)
				if rng.Float64() >= copies {
					break
				}
			}
		}
		for i := range arrivals {
			j := i + rng.IntN(min(reach, len(arrivals)-i))
			arrivals[i], arrivals[j] = arrivals[j], arrivals[i]
		}
		s := new(sequences)
		seen := make(map[uint64]bool)
		var highest, reordered, duplicate uint64
		for i, sequence := range arrivals {
			s.add(sequence)
			switch {
			case seen[sequence]:
				duplicate++
			case i > 0 && sequence < highest:
				reordered++
			}
			seen[sequence] = true
			highest = max(highest, sequence)
		}
		if s.unique != uint64(len(seen)) || s.reordered != reordered || s.duplicate != duplicate || s.stale != 0 || s.lost(n) != n-uint64(len(seen)) {
			t.Errorf("seed %d: %d unique, %d reordered, %d duplicate, %d stale, %d lost; want %d, %d, %d, 0, %d", seed,
				s.unique, s.reordered, s.duplicate, s.stale, s.lost(n), len(seen), reordered, duplicate, n-uint64(len(seen)))
		}
	}
}

func TestSequencesBeyondWindow(t *testing.T) {
	s := new(sequences)
	for _, sequence := range []uint64{0, 5, 5 + window, 6, 5, 5 + 3*window, 6 + window, 6 + 2*window} {
		s.add(sequence)
	}
	// 6 is the oldest that the window still holds when it comes; 5 is beyond it, and so is 6+window later.
	if s.unique != 6 || s.reordered != 2 || s.duplicate != 0 || s.stale != 2 {
		t.Errorf("%d unique, %d reordered, %d duplicate, %d stale", s.unique, s.reordered, s.duplicate, s.stale)
	}
}
