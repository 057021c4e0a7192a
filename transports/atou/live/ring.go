package live

import "sync/atomic"

// A ring takes values from one goroutine to another without waiting or
// allocating. What does not fit is counted.
type ring[T any] struct {
	slots []T
	head  atomic.Uint64 // values taken
	_     [7]uint64     // not in one cache line: each is written by another thread
	tail  atomic.Uint64 // values put
	lost  atomic.Uint64
}

func newRing[T any](n int) *ring[T] { return &ring[T]{slots: make([]T, n)} }

func (r *ring[T]) put(v *T) {
	tail := r.tail.Load()
	if tail-r.head.Load() == uint64(len(r.slots)) {
		r.lost.Add(1)
		return
	}
	r.slots[tail%uint64(len(r.slots))] = *v
	r.tail.Store(tail + 1)
}

// each takes all values that are there.
func (r *ring[T]) each(take func(*T)) {
	head := r.head.Load()
	for tail := r.tail.Load(); head < tail; {
		take(&r.slots[head%uint64(len(r.slots))])
		head++
		r.head.Store(head)
	}
}
