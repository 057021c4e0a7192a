package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dumbbell/agent/plan"
)

func TestCommand(t *testing.T) {
	t.Parallel()
	needIperf3(t)
	p := loopbackPlan(t)
	f := &p.Flows[0]
	f.Kind, f.CongestionControl, f.RateBps = "command", nil, nil
	server, client := fmt.Sprint(f.ServerPort), fmt.Sprint(f.ClientPort)
	own := p.Own()
	own.Actions = []plan.Action{
		{At: -5 * time.Second, Kind: "command_server", Flow: "flow1", Argv: []string{"iperf3", "-s", "-p", server}},
		{At: 0, Kind: "command_client", Flow: "flow1", Argv: []string{
			"iperf3", "-c", "127.0.0.1", "-B", "127.0.0.1", "-p", server, "--cport", client, "-t", "60", "-b", "10M"}},
	}
	p.Hosts["here"] = own
	a := startAgent(t, p)
	a.start()
	a.end("done", 0)
	if launched := a.events("flow_launched"); len(launched) != 2 {
		t.Errorf("launched %+v", launched)
	}
	for _, side := range []string{"client", "server"} {
		if b, err := os.ReadFile(filepath.Join(a.dir, "command-flow1-"+side+".txt")); err != nil || len(b) == 0 {
			t.Errorf("%s: %v: %q", side, err, b)
		}
	}
	spooled, err := os.ReadFile(filepath.Join(a.dir, "spool.lp"))
	if err != nil {
		t.Fatal(err)
	}
	for _, side := range []string{"side=sender", "side=receiver"} {
		if !strings.Contains(string(spooled), side) {
			t.Errorf("no samples with %s", side)
		}
	}
}

// TestCommandThatFails says so.
func TestCommandThatFails(t *testing.T) {
	t.Parallel()
	p := loopbackPlan(t)
	f := &p.Flows[0]
	f.Kind, f.CongestionControl, f.RateBps = "command", nil, nil
	own := p.Own()
	own.Sample.TCP = nil
	own.Actions = []plan.Action{{At: 0, Kind: "command_client", Flow: "flow1", Argv: []string{"ls", "/nowhere"}}}
	p.Hosts["here"] = own
	a := startAgent(t, p)
	a.start()
	a.end("failed", 1, "command_client flow1", "/nowhere")
}
