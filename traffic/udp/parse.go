package udp

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

var rateUnits = []struct {
	name string
	bps  float64
}{{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {"bit", 1}} // bit last: the others end in it

// ParseRate reads a rate as tc writes it: 0, 500kbit, 1.5mbit, 10gbit.
func ParseRate(text string) (bps int64, err error) {
	if text == "0" {
		return 0, nil
	}
	for _, unit := range rateUnits {
		if number, ok := strings.CutSuffix(text, unit.name); ok {
			value, err := strconv.ParseFloat(number, 64)
			if err != nil || !(value >= 0) || value*unit.bps > MaxRateBps {
				break
			}
			return int64(math.Round(value * unit.bps)), nil
		}
	}
	return 0, fmt.Errorf("%q is not a rate such as 0, 500kbit, 100mbit or 10gbit", text)
}

// ParseSteps reads a rate, or the rates of a schedule with their offsets:
// "100mbit", "0s:100mbit,5s:0,10s:50mbit".
func ParseSteps(text string) (steps []Step, err error) {
	for part := range strings.SplitSeq(text, ",") {
		at, rate, timed := strings.Cut(part, ":")
		step := Step{}
		if !timed {
			rate = part
		} else if step.At, err = time.ParseDuration(at); err != nil {
			return nil, fmt.Errorf("%q: %q is not a time such as 1.5s", text, at)
		}
		if step.RateBps, err = ParseRate(rate); err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	return steps, nil
}
