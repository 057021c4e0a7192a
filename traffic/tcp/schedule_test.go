package tcp

import (
	"testing"
	"time"
)

// TestDue follows schedules of streams: what is due only grows, and in the end is what was asked.
func TestDue(t *testing.T) {
	t.Parallel()
	for _, s := range []Schedule{
		{Duration: time.Second, RateBps: 10e6},
		{Duration: time.Second, RateBps: 10e6 + 1},
		{Duration: 1234567891, RateBps: 999},
		{Duration: 3 * time.Second, RateBps: 100e9, Bytes: 1e9},
		{Duration: 8 * time.Hour, RateBps: 400e9},
		{Duration: time.Second, Burst: 1e6 + 1, Every: 30 * time.Millisecond},
		{Duration: time.Second, Burst: 1e6, Every: 2 * time.Second},
		{Duration: time.Second, Bytes: 1e6 + 2},
	} {
		for _, streams := range []int{1, 3} {
			var total int64
			for i := range streams {
				own := s.of(i, streams)
				total += own.Asked()
				before, at := int64(0), time.Duration(0)
				for range 2000 {
					due, more := own.due(at)
					if due <= before && at > 0 && due < own.Asked() || more <= at || more > s.Duration {
						t.Fatalf("%+v of %d: %d bytes at %v, %d before, more at %v", s, streams, due, at, before, more)
					}
					if before, at = due, more; at == s.Duration {
						if due != own.Asked() && own.Asked() != 0 {
							t.Errorf("%+v of %d: %d bytes due, %d asked", s, streams, due, own.Asked())
						}
						break
					}
				}
			}
			if off := s.Asked() - total; off < 0 || off > int64(streams) {
				t.Errorf("%+v: %d streams are asked %d, all %d", s, streams, total, s.Asked())
			}
		}
	}
}
