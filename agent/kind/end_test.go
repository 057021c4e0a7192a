package kind

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"dumbbell/agent/phase"
	"dumbbell/agent/plan"
)

// TestResultCannotBeEncoded: that is said.
func TestResultCannotBeEncoded(t *testing.T) {
	t.Parallel()
	r, err := phase.Open(t.TempDir(), "version")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Journal.Close()
	r.Plan, r.T0 = &plan.Plan{Flows: []plan.Flow{{Name: "flow1", Kind: "udp"}}}, time.Now()
	e := newEnd(&r.Plan.Flows[0], "udp", "sender")
	e.execute = func(context.Context, time.Time) (any, error) { return math.NaN(), nil }
	if err := e.run(t.Context(), r, plan.Action{Kind: "udp_send", Flow: "flow1"}); err == nil || !strings.Contains(err.Error(), "NaN") {
		t.Errorf("%v", err)
	}
}
