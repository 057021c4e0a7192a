package main

import (
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"dumbbell/agent/kind"
	"dumbbell/agent/plan"
)

// TestTCPPing asks a port that the agent itself answers at.
func TestTCPPing(t *testing.T) {
	t.Parallel()
	p := emptyPlan()
	own, here, port := p.Own(), netip.MustParseAddr("127.0.0.1"), freePort(t)
	own.Actions = []plan.Action{
		{At: -time.Second, Kind: "tcp_listen", Name: "x", Dst: here, DstPort: port},
		{Kind: "tcp_ping", Name: "x", Dst: here, DstPort: port, Count: 5, Interval: 50 * time.Millisecond},
	}
	p.Hosts["here"] = own
	a := startAgent(t, p)
	a.start()
	a.end("done", 0)
	b, err := os.ReadFile(filepath.Join(a.dir, "tcp-ping-x.json"))
	if err != nil {
		t.Fatal(err)
	}
	var found kind.TCPPings
	if err := json.Unmarshal(b, &found); err != nil || found.Sent != 5 || len(found.RTTs) != 5 {
		t.Fatalf("%s, %v", b, err)
	}
	if quickest := slices.Min(found.RTTs); quickest <= 0 || quickest > 1e9 {
		t.Errorf("the quickest took %d ns", quickest)
	}
}

// TestTCPPingWithoutAnswer asks a port at which nobody listens.
func TestTCPPingWithoutAnswer(t *testing.T) {
	t.Parallel()
	p := emptyPlan()
	own, here := p.Own(), netip.MustParseAddr("127.0.0.1")
	own.Actions = []plan.Action{{Kind: "tcp_ping", Name: "x", Dst: here, DstPort: freePort(t), Count: 2, Interval: 50 * time.Millisecond}}
	p.Hosts["here"] = own
	a := startAgent(t, p)
	a.start()
	a.end("failed", 1, "tcp_ping x: no answer: ", "connection refused")
}

// TestTCPListenPortInUse: nobody is armed with a port that is taken.
func TestTCPListenPortInUse(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	p := emptyPlan()
	port := uint16(taken.Addr().(*net.TCPAddr).Port)
	p.Hosts["here"] = plan.HostPlan{Actions: []plan.Action{{Kind: "tcp_listen", Name: "x", Dst: netip.MustParseAddr("127.0.0.1"), DstPort: port}}}
	a := startAgent(t, p)
	a.end("failed", 1, "here: tcp_listen x: listen tcp 127.0.0.1:", "address already in use")
	if armed := a.events("armed"); len(armed) != 0 {
		t.Errorf("armed %+v", armed)
	}
}
