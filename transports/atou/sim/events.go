package sim

import "time"

// An event is an arrival at the end of a path.
type event struct {
	at     time.Duration
	order  uint64 // of scheduling: events of one moment happen in it
	packet *packet
}

func (e event) before(f event) bool { return e.at < f.at || e.at == f.at && e.order < f.order }

// events is a binary heap; container/heap would allocate at each push.
type events []event

func (h *events) push(e event) {
	*h = append(*h, e)
	i := len(*h) - 1
	for ; i > 0; i = (i - 1) / 2 {
		up := (i - 1) / 2
		if !e.before((*h)[up]) {
			break
		}
		(*h)[i] = (*h)[up]
	}
	(*h)[i] = e
}

func (h *events) pop() event {
	top, n := (*h)[0], len(*h)-1
	e := (*h)[n]
	*h = (*h)[:n]
	if n == 0 {
		return top
	}
	i := 0
	for {
		down := 2*i + 1
		if down >= n {
			break
		}
		if down+1 < n && (*h)[down+1].before((*h)[down]) {
			down++
		}
		if !(*h)[down].before(e) {
			break
		}
		(*h)[i] = (*h)[down]
		i = down
	}
	(*h)[i] = e
	return top
}
