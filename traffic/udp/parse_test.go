package udp

import (
	"slices"
	"testing"
	"time"
)

func TestParseSteps(t *testing.T) {
	for text, want := range map[string][]Step{
		"0":                           {{0, 0}},
		"100mbit":                     {{0, 100e6}},
		"1.5gbit":                     {{0, 1.5e9}},
		"9bit":                        {{0, 9}},
		"0s:64kbit,1.5s:0,2s:100mbit": {{0, 64e3}, {1500 * time.Millisecond, 0}, {2 * time.Second, 100e6}},
	} {
		if got, err := ParseSteps(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "100", "mbit", "-1mbit", "NaNmbit", "Infbit", "2tbit", "5:1mbit", "1s:", "1mbit,", "1e6gbit"} {
		if got, err := ParseSteps(text); err == nil {
			t.Errorf("%q is taken for %v", text, got)
		}
	}
}
