package kind

import (
	"testing"
	"time"

	"dumbbell/agent/plan"
)

// TestLead: who only waits needs little time, who connects needs more, unless its flow starts later.
func TestLead(t *testing.T) {
	for name, c := range map[string]struct {
		actions []plan.Action
		want    time.Duration
	}{
		"nothing":        {nil, 500 * time.Millisecond},
		"servers":        {[]plan.Action{{At: -5 * time.Second, Kind: "iperf3_server"}, {At: -time.Second, Kind: "capture"}}, 500 * time.Millisecond},
		"ping":           {[]plan.Action{{Kind: "ping"}}, 500 * time.Millisecond},
		"client":         {[]plan.Action{{Kind: "ping"}, {Kind: "iperf3_client"}}, 3 * time.Second},
		"atou":           {[]plan.Action{{Kind: "atou_send"}}, 3 * time.Second},
		"tcp":            {[]plan.Action{{Kind: "tcp_send"}}, 3 * time.Second},
		"later":          {[]plan.Action{{At: 2 * time.Second, Kind: "iperf3_client"}, {At: 5 * time.Second, Kind: "iperf3_client"}}, time.Second},
		"much later":     {[]plan.Action{{At: time.Minute, Kind: "iperf3_client"}}, 500 * time.Millisecond},
		"path":           {[]plan.Action{{At: 100 * time.Millisecond, Kind: "path"}}, 900 * time.Millisecond},
		"a path that is": {[]plan.Action{{At: time.Minute, Kind: "path"}}, 500 * time.Millisecond},
	} {
		p := &plan.Plan{Host: "here", SamplingInterval: 20 * time.Millisecond, Hosts: map[string]plan.HostPlan{"here": {Actions: c.actions}}}
		if got := Lead(p, 10*time.Millisecond); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
