package kind

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dumbbell/agent/phase"
	"dumbbell/agent/plan"
	"dumbbell/collectors/clock"
	"dumbbell/collectors/row"
)

// What is no line of integers is no row.
func TestRelayAtouLine(t *testing.T) {
	clock, err := clock.New()
	if err != nil {
		t.Fatal(err)
	}
	r := &phase.Run{Clock: clock}
	series := row.NewSeries("tcp_info", row.Tags{"flow": "f"})
	for line, want := range map[string]string{
		"atou,host=x snd_cwnd=5i,srtt_us=70i,mono_ns=3i 1700000000000000001\n": `tcp_info,flow=f snd_cwnd=5i,srtt_us=70i,congestion_control="atou",mono_ns=`,
		"":                        "",
		"# a comment":             "",
		"atou snd_cwnd=5.5 7":     `reading "atou snd_cwnd=5.5 7": snd_cwnd is no integer`,
		"atou snd_cwnd=5i":        "it has no time",
		"atou snd_cwnd=5i,x= 7":   "reading",
		`atou name="reno" 7`:      "name is no integer",
		"atou,host=x snd_cwnd=5i": "it has no time",
	} {
		rows := row.NewRows(clock)
		err := relayAtouLine(r, series, []byte(line), rows)
		found := string(rows.Bytes())
		if err != nil {
			if rows.Len() > 0 {
				t.Errorf("%q is a row, and %v", line, err)
			}
			found = err.Error()
		}
		if (want == "") != (found == "") || !strings.Contains(found, want) {
			t.Errorf("%q becomes %q, want %q", line, found, want)
		}
	}
}

// TestTokenIsLeft: a secret that cannot be removed is told.
func TestTokenIsLeft(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "phase")
	if err := os.MkdirAll(filepath.Join(TokenFile(dir), "full"), 0o755); err != nil {
		t.Fatal(err)
	}
	p := &plan.Plan{Flows: []plan.Flow{{Name: "flow1", Kind: "atou"}}}
	if err := Forget(dir, p); err == nil || !strings.Contains(err.Error(), "removing the token of a run: ") {
		t.Error(err)
	}
}
