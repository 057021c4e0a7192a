package udp

import (
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func departures(s Schedule) (all []time.Duration) {
	p := newPacer(s)
	for at, ok := p.next(); ok; at, ok = p.next() {
		all = append(all, at)
	}
	return all
}

func TestPacerConstant(t *testing.T) {
	// 1000 bytes at 3 Mbit/s: a datagram every 2 2/3 ms.
	got := departures(Schedule{Steps: []Step{{0, 3e6}}, Duration: 16 * time.Millisecond, Size: 1000})
	want := []time.Duration{0, 2666666, 5333333, 8000000, 10666666, 13333333}
	if !slices.Equal(got, want) {
		t.Errorf("departures %v, want %v", got, want)
	}
}

func TestPacerSteps(t *testing.T) {
	ms := time.Millisecond
	// A datagram of 1000 bytes takes 1 ms, then 4 ms, then there is silence.
	got := departures(Schedule{
		Steps:    []Step{{2 * ms, 8e6}, {4*ms + 500_000, 2e6}, {9 * ms, 0}, {20 * ms, 8e6}},
		Duration: 22 * ms, Size: 1000,
	})
	// At 4.5 ms half a datagram is owed: 2 ms at the new rate. At 9 ms five eighths have gone since 6.5 ms.
	want := []time.Duration{2 * ms, 3 * ms, 4 * ms, 6*ms + 500_000, 20*ms + 375_000, 21*ms + 375_000}
	if !slices.Equal(got, want) {
		t.Errorf("departures %v, want %v", got, want)
	}
}

// TestPacerAgainstIntegral compares any schedule with its definition in exact
// arithmetic: n datagrams have left before t if the integral up to t is above
// n-1 datagrams.
func TestPacerAgainstIntegral(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		s := Schedule{Duration: time.Duration(1 + rng.Int64N(2e9)), Size: HeaderBytes + rng.IntN(9000)}
		at := time.Duration(0)
		for range 1 + rng.IntN(6) {
			s.Steps = append(s.Steps, Step{at, rng.Int64N(3) * rng.Int64N(20e6)})
			at += time.Duration(1 + rng.Int64N(1e9))
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		integral := func(to time.Duration) *big.Int { // bits times ns
			sum := new(big.Int)
			for i, step := range s.Steps {
				end := to
				if i+1 < len(s.Steps) {
					end = min(end, s.Steps[i+1].At)
				}
				if end > step.At {
					sum.Add(sum, new(big.Int).Mul(big.NewInt(int64(end-step.At)), big.NewInt(step.RateBps)))
				}
			}
			return sum
		}
		datagram := big.NewInt(int64(s.Size) * 8e9)
		all := departures(s)
		for n, at := range all {
			due := new(big.Int).Mul(big.NewInt(int64(n)), datagram)
			if integral(at).Cmp(due) > 0 || integral(at+1).Cmp(due) <= 0 {
				t.Fatalf("seed %d: datagram %d leaves at %d, where %v of %v are due", seed, n, at, integral(at), due)
			}
			if at >= s.Duration || n > 0 && at < all[n-1] {
				t.Fatalf("seed %d: datagram %d leaves at %d after %d, the end is %d", seed, n, at, all[max(0, n-1)], s.Duration)
			}
		}
		if due := new(big.Int).Mul(big.NewInt(int64(len(all))), datagram); integral(s.Duration).Cmp(due) > 0 {
			t.Fatalf("seed %d: %d datagrams leave, %v of %v are due", seed, len(all), integral(s.Duration), due)
		}
	}
}

func TestScheduleCheck(t *testing.T) {
	good := Schedule{Steps: []Step{{0, 1e6}}, Duration: time.Second, Size: 1472}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Schedule){
		"no rate":       func(s *Schedule) { s.Steps = nil },
		"negative rate": func(s *Schedule) { s.Steps[0].RateBps = -1 },
		"huge rate":     func(s *Schedule) { s.Steps[0].RateBps = MaxRateBps + 1 },
		"no duration":   func(s *Schedule) { s.Duration = 0 },
		"small":         func(s *Schedule) { s.Size = HeaderBytes - 1 },
		"large":         func(s *Schedule) { s.Size = MaxSize + 1 },
		"order":         func(s *Schedule) { s.Steps = append(s.Steps, Step{0, 1}) },
	} {
		bad := good
		bad.Steps = slices.Clone(good.Steps)
		spoil(&bad)
		if bad.Check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
