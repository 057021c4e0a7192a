package sim

import (
	"math/rand/v2"
	"time"
)

// A Path carries datagrams one way: loss, then a drop-tail queue before a link,
// then the link's delay, then reordering and duplication.
type Path struct {
	RateBps   int64         // of the link, headers of UDP and IPv4 included; 0: infinite
	Delay     time.Duration // of propagation
	Queue     int           // most datagrams waiting or in transmission; 0: no limit
	Loss      float64       // share of datagrams lost at random
	Drop      []uint64      // datagrams to lose, by their number on this path from 0, ascending
	Reorder   float64       // share of datagrams that others overtake
	Displace  int           // how many overtake each
	Duplicate float64       // share of datagrams that arrive twice
}

// holdMax is how long an overtaken datagram waits for those that should
// overtake it, when they do not come.
const holdMax = 10 * time.Millisecond

// PathStats are the counts of a path.
type PathStats struct {
	Sent       uint64 // datagrams, those lost included
	Lost       uint64 // at random or by the list
	Overflowed uint64 // at a full queue
	Overtaken  uint64
	Duplicated uint64
	MaxQueue   int // datagrams
}

// headerBytes are those of UDP and IPv4.
const headerBytes = 28

type path struct {
	Path
	rng    *rand.Rand
	drops  []uint64
	stats  PathStats
	free   time.Duration   // when the link has sent all it has
	queue  []time.Duration // ends of transmission, a ring
	first  int             // of the queue
	length int
	held   []*packet
}

func newPath(p Path, rng *rand.Rand) path {
	return path{Path: p, rng: rng, drops: p.Drop, queue: make([]time.Duration, 64)}
}

// enter takes a datagram and tells when it reaches the far end, or that it
// does not.
func (p *path) enter(now time.Duration, bytes int) (arrival time.Duration, ok bool) {
	number := p.stats.Sent
	p.stats.Sent++
	if listed := len(p.drops) > 0 && p.drops[0] == number; listed || p.rng.Float64() < p.Loss {
		if listed {
			p.drops = p.drops[1:]
		}
		p.stats.Lost++
		return 0, false
	}
	if p.RateBps == 0 {
		return now + p.Delay, true
	}
	if length := p.waiting(now); p.Queue > 0 && length >= p.Queue {
		p.stats.Overflowed++
		return 0, false
	}
	bits := int64(bytes+headerBytes) * 8
	p.free = max(p.free, now) + time.Duration(bits*int64(time.Second)/p.RateBps)
	p.push(p.free)
	p.stats.MaxQueue = max(p.stats.MaxQueue, p.length)
	return p.free + p.Delay, true
}

// waiting is how many datagrams wait or are in transmission.
func (p *path) waiting(now time.Duration) int {
	for p.length > 0 && p.queue[p.first] <= now {
		p.first = (p.first + 1) % len(p.queue)
		p.length--
	}
	return p.length
}

func (p *path) push(end time.Duration) {
	if p.length == len(p.queue) {
		grown := make([]time.Duration, 2*p.length)
		n := copy(grown, p.queue[p.first:])
		copy(grown[n:], p.queue[:p.first])
		p.queue, p.first = grown, 0
	}
	p.queue[(p.first+p.length)%len(p.queue)] = end
	p.length++
}
