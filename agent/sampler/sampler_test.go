package sampler

import (
	"testing"
	"time"

	"dumbbell/agent/kind"
	"dumbbell/agent/plan"
)

// TestLead: what is sampled begins before t0.
func TestLead(t *testing.T) {
	own := plan.HostPlan{Sample: plan.Sample{Qdisc: true}}
	p := &plan.Plan{Host: "here", SamplingInterval: 20 * time.Millisecond, Hosts: map[string]plan.HostPlan{"here": own}}
	if ahead := Lead(p); ahead != 2010*time.Millisecond || kind.Lead(p, ahead) != 2260*time.Millisecond {
		t.Errorf("sampling begins %v ahead, and the agent needs %v", ahead, kind.Lead(p, ahead))
	}
}
