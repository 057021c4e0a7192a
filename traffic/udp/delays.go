package udp

import (
	"math"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Delays are told to three digits. They have the sign that was measured: where
// the receiver's clock is behind the sender's they are negative.
const (
	delayDigits = 3
	delayMax    = math.MaxInt64 / 2
)

// delayStats are exact.
type delayStats struct {
	packets  uint64
	sum      float64
	min, max int64
}

func (d *delayStats) add(ns int64) {
	if d.packets == 0 {
		d.min, d.max = ns, ns
	}
	d.min, d.max = min(d.min, ns), max(d.max, ns)
	d.packets++
	d.sum += float64(ns)
}

func (d *delayStats) into(r *ReceivedReport) {
	r.DelayPackets, r.DelayMinNs, r.DelayMaxNs, r.DelayMeanNs = d.packets, d.min, d.max, 0
	if d.packets > 0 {
		r.DelayMeanNs = int64(math.Round(d.sum / float64(d.packets)))
	}
}

// percentiles count delays below zero by their size, apart from the others: a
// histogram takes no negative values.
type percentiles struct{ negative, positive *hdrhistogram.Histogram }

func newPercentiles() percentiles {
	return percentiles{hdrhistogram.New(1, delayMax, delayDigits), hdrhistogram.New(1, delayMax, delayDigits)}
}

func (p percentiles) add(ns int64) {
	if ns < 0 {
		p.negative.RecordValue(-max(ns, -delayMax))
	} else {
		p.positive.RecordValue(min(ns, delayMax))
	}
}

// at is the delay that a percentage of the delays do not exceed, 0 if there are none.
func (p percentiles) at(percent float64) int64 {
	negative, positive := p.negative.TotalCount(), p.positive.TotalCount()
	rank := max(1, int64(math.Ceil(percent/100*float64(negative+positive))))
	if rank <= negative { // the larger its size, the lower its rank
		return -p.negative.ValueAtPercentile(100 * float64(negative-rank+1) / float64(negative))
	}
	return p.positive.ValueAtPercentile(100 * float64(rank-negative) / float64(max(positive, 1)))
}
