package sim

import (
	"math"
	"math/rand/v2"
	"time"
)

// A Path carries datagrams one way: loss, then a policer, then a drop-tail queue
// before a link, then the link's delay, then reordering and duplication. A
// datagram that is larger than the MTU is so many packets, and lost with any of
// them.
type Path struct {
	RateBps     int64         `json:"rate_bps"`     // of the link, headers of UDP and IPv4 included; 0: infinite
	Delay       time.Duration `json:"delay_ns"`     // of propagation
	Queue       int           `json:"queue"`        // most packets waiting or in transmission; 0: no limit
	MTU         int           `json:"mtu"`          // bytes of a packet; 0: 1500
	PoliceBps   int64         `json:"police_bps"`   // rate beyond which datagrams are dropped, counted as the link's; 0: none
	PoliceBurst int           `json:"police_burst"` // bytes that may exceed it at once
	Loss        float64       `json:"loss"`         // share of packets lost at random
	Drop        []uint64      `json:"drop"`         // datagrams to lose, by their number on this path from 0, ascending
	Reorder     float64       `json:"reorder"`      // share of datagrams that others overtake
	DisplaceMin int           `json:"displace_min"` // least of them that overtake each; 0: Displace
	Displace    int           `json:"displace"`     // most of them, any number as likely
	Cluster     int           `json:"cluster"`      // datagrams that are overtaken together, each once the one before has arrived; 0: 1
	Hold        time.Duration `json:"hold_ns"`      // how long an overtaken one waits for others that do not come; 0: 10 ms
	Duplicate   float64       `json:"duplicate"`    // share of datagrams that arrive twice
}

const (
	defaultMTU  = 1500
	defaultHold = 10 * time.Millisecond
)

// PathStats are the counts of a path.
type PathStats struct {
	Sent       uint64 `json:"sent"`       // datagrams, those lost included
	Lost       uint64 `json:"lost"`       // at random or by the list
	Policed    uint64 `json:"policed"`    // beyond the policer's rate
	Overflowed uint64 `json:"overflowed"` // at a full queue
	Overtaken  uint64 `json:"overtaken"`
	Duplicated uint64 `json:"duplicated"`
	MaxQueue   int    `json:"max_queue"` // packets
}

const (
	ipBytes  = 20 // of a header
	udpBytes = 8
)

type path struct {
	Path
	rng    *rand.Rand
	drops  []uint64
	stats  PathStats
	tokens float64         // bytes that the policer lets through
	filled time.Duration   // when it had them
	free   time.Duration   // when the link has sent all it has
	queue  []time.Duration // ends of transmission, a ring
	first  int             // of the queue
	length int
	held   []*packet
	begin  float64 // how likely a cluster begins with a datagram
	calm   int     // datagrams until another of the cluster is overtaken
	left   int     // of the cluster
}

func newPath(p Path, rng *rand.Rand) path {
	if p.MTU == 0 {
		p.MTU = defaultMTU
	}
	if p.Hold == 0 {
		p.Hold = defaultHold
	}
	if p.DisplaceMin == 0 {
		p.DisplaceMin = p.Displace
	}
	p.Cluster = max(p.Cluster, 1)
	// Those of a cluster that are not overtaken count too.
	between := float64(p.Cluster-1) * float64(p.DisplaceMin+p.Displace) / 2
	begin := 1.0
	if apart := float64(p.Cluster) - p.Reorder*between; apart > p.Reorder {
		begin = p.Reorder / apart
	}
	return path{Path: p, rng: rng, begin: begin, drops: p.Drop, tokens: float64(p.PoliceBurst), queue: make([]time.Duration, 64)}
}

// packets is how many a datagram of so many bytes is: all fragments but the
// last have a multiple of 8 bytes.
func (p *path) packets(bytes int) int {
	if bytes+udpBytes+ipBytes <= p.MTU {
		return 1
	}
	each := (p.MTU - ipBytes) &^ 7
	return (bytes + udpBytes + each - 1) / each
}

// conforms takes a datagram's bytes from the policer's bucket, if they are in it.
func (p *path) conforms(now time.Duration, bytes int) bool {
	if p.PoliceBps == 0 {
		return true
	}
	p.tokens = min(p.tokens+(now-p.filled).Seconds()*float64(p.PoliceBps)/8, float64(p.PoliceBurst))
	p.filled = now
	if p.tokens < float64(bytes) {
		return false
	}
	p.tokens -= float64(bytes)
	return true
}

// displacement is how many are to overtake a datagram; 0 for none.
func (p *path) displacement() int {
	switch {
	case p.Displace == 0:
		return 0
	case p.left == 0:
		if p.rng.Float64() >= p.begin {
			return 0
		}
		p.left = p.Cluster
	case p.calm > 0:
		p.calm--
		return 0
	}
	n := p.DisplaceMin
	if more := p.Displace - n; more > 0 {
		n += p.rng.IntN(more + 1)
	}
	p.left--
	p.calm = n
	return n
}

// enter takes a datagram and tells when it reaches the far end, or that it
// does not.
func (p *path) enter(now time.Duration, bytes int) (arrival time.Duration, ok bool) {
	number := p.stats.Sent
	p.stats.Sent++
	packets := p.packets(bytes)
	lost := p.Loss
	if packets > 1 {
		lost = 1 - math.Pow(1-p.Loss, float64(packets))
	}
	if listed := len(p.drops) > 0 && p.drops[0] == number; listed || p.rng.Float64() < lost {
		if listed {
			p.drops = p.drops[1:]
		}
		p.stats.Lost++
		return 0, false
	}
	size := bytes + udpBytes + packets*ipBytes
	if !p.conforms(now, size) {
		p.stats.Policed++
		return 0, false
	}
	if p.RateBps == 0 {
		return now + p.Delay, true
	}
	if length := p.waiting(now); p.Queue > 0 && length+packets > p.Queue {
		p.stats.Overflowed++
		return 0, false
	}
	p.free = max(p.free, now)
	took := max(1, time.Duration(int64(size)*8*int64(time.Second)/p.RateBps)) // else time could stand still
	for i := range packets {
		p.push(p.free + took*time.Duration(i+1)/time.Duration(packets))
	}
	p.free += took
	p.stats.MaxQueue = max(p.stats.MaxQueue, p.length)
	return p.free + p.Delay, true
}

// waiting is how many packets wait or are in transmission.
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
