package main

import (
	"encoding/json"
	"testing"
	"time"

	"dumbbell/agent/plan"
	"dumbbell/traffic/tcp"
)

// tcpPlan has one flow of the agent's own in place of iperf3's.
func tcpPlan(t *testing.T, streams int) *plan.Plan {
	t.Helper()
	p := loopbackPlan(t)
	f := &p.Flows[0]
	f.Kind, f.Streams, f.ClientPort = "tcp", streams, freePorts(t, uint16(streams))
	own := p.Own()
	own.Actions = []plan.Action{
		{At: -5 * time.Second, Kind: "tcp_receive", Flow: "flow1"},
		{At: 0, Kind: "tcp_send", Flow: "flow1"},
	}
	p.Hosts["here"] = own
	return p
}

// TestRunTCPFlow sends data of the agent's own: the streams connect before their
// start, begin at it, and are sampled to their ends.
func TestRunTCPFlow(t *testing.T) {
	t.Parallel()
	const streams = 2
	p := tcpPlan(t, streams)
	connect := -500 * time.Millisecond
	p.Flows[0].Connect = &connect
	a := startAgent(t, p)
	t0 := a.start()
	a.end("done", 0)
	if launched := a.events("flow_launched"); len(launched) != 2 {
		t.Errorf("launched %+v", launched)
	}
	// The upper bound is generous: tests share a machine.
	if e := a.one("flow_first_data"); e.Planned != t0 || e.Error == nil || *e.Error < 0 || *e.Error > 200e6 {
		t.Errorf("first data %+v, t0 is %d", e, t0)
	}
	if e := a.one("flow_congestion_control"); e.Name != "cubic" {
		t.Errorf("congestion control %q", e.Name)
	}
	checkSpool(t, a, t0, streams)
	var sent tcp.SentResult
	var received tcp.ReceivedResult
	for name, v := range map[string]any{"tcp-flow1-sender.json": &sent, "tcp-flow1-receiver.json": &received} {
		if err := json.Unmarshal([]byte(a.file(name)), v); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if len(sent.Streams) != streams || len(received.Streams) != streams || received.Foreign != 0 {
		t.Fatalf("sent %+v, received %+v", sent, received)
	}
	for i, s := range sent.Streams {
		if r := received.Streams[i]; s.Bytes < 2e6 || s.Bytes > 25e6/8 || s.ConfirmedBytes != s.Bytes || r.Bytes != s.Bytes || !r.EndSeen {
			t.Errorf("stream %d: sent %+v, received %+v", i, s, r)
		}
		if s.ConnectedUnixNs < t0+int64(connect) || s.ConnectedUnixNs > t0 {
			t.Errorf("stream %d was connected %d ns after t0", i, s.ConnectedUnixNs-t0)
		}
	}
}

// TestTCPPortInUse: that is found before the host says that it is armed.
func TestTCPPortInUse(t *testing.T) {
	t.Parallel()
	p := tcpPlan(t, 1)
	p.Flows[0].ClientPort = p.Flows[0].ServerPort
	startAgent(t, p).end("failed", 1, "tcp_send flow1: binding to 127.0.0.1:", "address already in use")
}
