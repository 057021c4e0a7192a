package proto

import (
	"testing"
	"time"

	"dumbbell/transports/atou/config"

	"pgregory.net/rapid"
)

// TestReceiverAgainstSet compares a receiver with one that remembers all.
func TestReceiverAgainstSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.Uint64Range(1, 200).Draw(t, "window")
		r := NewReceiver(config.Receiver{SACK: true}, window)
		got, next := map[uint64]bool{}, uint64(0)
		var cum, duplicates uint64
		for range rapid.IntRange(1, 300).Draw(t, "arrivals") {
			low := cum - min(cum, 5)
			seg := rapid.Uint64Range(low, cum+window-1).Draw(t, "seg")
			if got[seg] {
				duplicates++
			}
			got[seg], next = true, max(next, seg+1)
			for got[cum] {
				cum++
			}
			r.Data(0, &Data{Seg: seg, Bytes: 100})
			var a Ack
			r.Ack(&a)
			if a.Cum != cum || r.Delivered() != cum || uint64(a.Received) != uint64(len(got)) || uint64(a.Duplicates) != duplicates || a.Seg != seg {
				t.Fatalf("after %d: %+v; cumulative is %d, %d received, %d duplicates", seg, a, cum, len(got), duplicates)
			}
			for i, b := range a.Blocks[:a.NumBlocks] { // each is a whole run
				if b.Start <= cum || got[b.Start-1] || got[b.End] {
					t.Fatalf("block %v is no whole run above %d", b, cum)
				}
				for s := b.Start; s < b.End; s++ {
					if !got[s] {
						t.Fatalf("block %v holds %d, which has not arrived", b, s)
					}
				}
				for _, other := range a.Blocks[:i] {
					if other == b {
						t.Fatalf("block %v stands twice", b)
					}
				}
			}
			var runs int // above cum
			for s := cum + 1; s < next; s++ {
				if got[s] && !got[s-1] {
					runs++
				}
			}
			if (runs > 0) != (a.NumBlocks > 0) && seg > cum {
				t.Fatalf("%d runs, %d blocks", runs, a.NumBlocks)
			}
			if seg > cum && (seg < a.Blocks[0].Start || seg >= a.Blocks[0].End) {
				t.Fatalf("the first block %v is not that of the last arrival %d", a.Blocks[0], seg)
			}
		}
	})
}

func TestReceiverDelaysAcks(t *testing.T) {
	const ms = time.Millisecond
	r := NewReceiver(config.Receiver{DelAck: 200 * ms}, 100)
	for _, c := range []struct {
		at  time.Duration
		seg uint64
		ack bool
	}{
		{0, 0, false}, {1 * ms, 1, true}, {2 * ms, 2, false}, {3 * ms, 3, true}, // every other segment
		{4 * ms, 5, true}, {5 * ms, 6, true}, // out of order
		{6 * ms, 4, true}, // fills the gap
		{7 * ms, 4, true}, // a duplicate
		{8 * ms, 7, false},
	} {
		ack := r.Data(c.at, &Data{Seg: c.seg})
		if ack != c.ack {
			t.Errorf("segment %d: ACK %v, want %v", c.seg, ack, c.ack)
		}
		if at, ok := r.Deadline(); !ack && (!ok || at != c.at+200*ms) {
			t.Errorf("segment %d: deadline %v, %v", c.seg, at, ok)
		}
		if ack {
			r.Ack(new(Ack))
			if at, ok := r.Deadline(); ok {
				t.Errorf("segment %d: deadline %v after an ACK", c.seg, at)
			}
		}
	}
	want := ReceiverStats{Arrived: 9, Received: 8, AcksSent: 6, Missing: 1, Duplicates: 1, Displacement: 2, Elapsed: 8 * ms}
	if got := r.Stats(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if r.Data(0, &Data{Seg: 8 + 100}) || r.Stats().Beyond != 1 {
		t.Error("a segment beyond the window is taken")
	}
}
