package proto

import (
	"testing"

	"pgregory.net/rapid"
)

// TestRing compares a ring with a set.
func TestRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.Uint64Range(1, 300).Draw(t, "window")
		base := rapid.Uint64Range(0, 1000).Draw(t, "base")
		r, set := newRing(window), map[uint64]bool{}
		for _, i := range rapid.SliceOf(rapid.Uint64Range(0, window-1)).Draw(t, "set") {
			if r.set(base+i) == set[base+i] {
				t.Fatalf("set(%d) does not know that it was %v", base+i, set[base+i])
			}
			set[base+i] = true
		}
		from := base + rapid.Uint64Range(0, window).Draw(t, "from")
		to := rapid.Uint64Range(from, base+window).Draw(t, "to")
		up, down := from, to
		for up < to && set[up] {
			up++
		}
		for down > from && set[down-1] {
			down--
		}
		if got := r.unset(from, to); got != up {
			t.Fatalf("unset(%d, %d) is %d, not %d", from, to, got, up)
		}
		if got := r.unsetBelow(from, to); got != down {
			t.Fatalf("unsetBelow(%d, %d) is %d, not %d", from, to, got, down)
		}
	})
}
