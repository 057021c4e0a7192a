package udp

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// received counts datagrams of given delays, and returns the result.
func received(t *testing.T, delays []int64) ReceivedResult {
	t.Helper()
	r, err := NewReceiver(ReceiverConfig{Listen: netip.MustParseAddrPort("127.0.0.1:0"), Interval: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b := make([]byte, HeaderBytes)
	for i, delay := range delays {
		arrival := int64(1e18) + int64(i)
		header{kindData, 0, uint64(i), arrival - delay}.encode(b)
		r.count(b, arrival)
	}
	return r.finish()
}

// TestDelays: percentiles are those of the delays as measured, also where the
// receiver's clock is behind the sender's, or far ahead of it.
func TestDelays(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 5))
	for name, offset := range map[string]int64{
		"clocks agree":       0,
		"behind":             -50e6,
		"behind by a little": -10.5e6,
		"an hour behind":     -3600e9,
		"an hour ahead":      3600e9,
	} {
		t.Run(name, func(t *testing.T) {
			delays := make([]int64, 1000)
			for i := range delays {
				delays[i] = offset + 10e6 + rng.Int64N(1e6)
			}
			r := received(t, delays)
			slices.Sort(delays)
			if r.DelayMinNs != delays[0] || r.DelayMaxNs != delays[len(delays)-1] {
				t.Errorf("from %d to %d, want %d to %d", r.DelayMinNs, r.DelayMaxNs, delays[0], delays[len(delays)-1])
			}
			for _, p := range []struct {
				rank int
				got  int64
			}{{500, r.DelayP50Ns}, {900, r.DelayP90Ns}, {990, r.DelayP99Ns}, {999, r.DelayP999Ns}} {
				want := delays[p.rank-1]
				if math.Abs(float64(p.got-want)) > 2e-3*math.Abs(float64(want)) {
					t.Errorf("the delay of rank %d is %d, want %d", p.rank, p.got, want)
				}
			}
		})
	}
}

// TestDelaysOfFewDatagrams: each of few delays is found, whatever its sign.
func TestDelaysOfFewDatagrams(t *testing.T) {
	for _, delays := range [][]int64{{-7}, {0}, {7}, {-7, 0, 7}, {-3, -2, -1}, {math.MinInt64 / 4, math.MaxInt64 / 4}} {
		p := newPercentiles()
		for _, d := range delays {
			p.add(d)
		}
		for i, want := range delays {
			got := p.at(100 * float64(i+1) / float64(len(delays)))
			if math.Abs(float64(got-want)) > 2e-3*math.Abs(float64(want)) {
				t.Errorf("%v: number %d is %d", delays, i+1, got)
			}
		}
	}
}
