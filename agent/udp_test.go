package main

import (
	"bytes"
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"dumbbell/agent/plan"
	"dumbbell/collectors/spool"
	"dumbbell/traffic/udp"
)

// TestRunUDPFlow sends datagrams of the agent's own, beside samples of a TCP
// flow that go to the same spool.
func TestRunUDPFlow(t *testing.T) {
	t.Parallel()
	needIperf3(t)
	p := loopbackPlan(t)
	rate := int64(8e6)
	p.Flows = append(p.Flows, plan.Flow{
		Name: "datagrams", Kind: "udp", SrcHost: "here", DstHost: "here",
		Src: netip.MustParseAddr("127.0.0.1"), Dst: netip.MustParseAddr("127.0.0.1"),
		ServerPort: freePort(t), ClientPort: freePort(t), Streams: 1,
		Start: 200 * time.Millisecond, Duration: 800 * time.Millisecond, RateBps: &rate, PayloadBytes: 1000,
		RateSteps: []udp.Step{{At: 200 * time.Millisecond, RateBps: 0}, {At: 600 * time.Millisecond, RateBps: rate / 2}},
	})
	own := p.Own()
	own.Actions = append(own.Actions,
		plan.Action{At: -5 * time.Second, Kind: "udp_receive", Flow: "datagrams"},
		plan.Action{At: 200 * time.Millisecond, Kind: "udp_send", Flow: "datagrams"})
	p.Hosts["here"] = own
	a := startAgent(t, p)
	t0 := a.start()
	a.end("done", 0)

	var first []event
	for _, e := range a.events("flow_first_data") {
		if e.Flow == "datagrams" {
			first = append(first, e)
		}
	}
	if len(first) != 1 || first[0].Planned != t0+200e6 || first[0].Error == nil || *first[0].Error < 0 || *first[0].Error > 200e6 {
		t.Errorf("first data %+v", first)
	}
	var sent udp.SentResult
	var received udp.ReceivedResult
	for name, v := range map[string]any{"udp-datagrams-sender.json": &sent, "udp-datagrams-receiver.json": &received} {
		b, err := os.ReadFile(filepath.Join(a.dir, name))
		if err != nil || json.Unmarshal(b, v) != nil {
			t.Fatalf("%s: %v: %s", name, err, b)
		}
	}
	// 200 in the first 200 ms, 100 in the last.
	if sent.AskedPackets != 300 || sent.SentPackets+sent.SkippedPackets != 300 {
		t.Errorf("sent %+v", sent)
	}
	if !received.EndSeen || received.ReceivedPackets != sent.SentPackets || received.LostPackets != 0 || received.ForeignPackets != 0 {
		t.Errorf("received %+v", received)
	}
	b, err := os.ReadFile(filepath.Join(a.dir, "spool.lp"))
	if err != nil {
		t.Fatal(err)
	}
	if done, err := spool.Scan(bytes.NewReader(b), 1); err != nil || done.Bytes != int64(len(b)) {
		t.Fatalf("spool: %+v, %v", done, err)
	}
	tags := "flow=datagrams,host=here,phase=measurement,point=point,run=run"
	for _, row := range []string{"side=sender asked_packets=", "side=receiver received_packets="} {
		if n := bytes.Count(b, []byte("\nudp,"+tags+","+row)); n < 35 { // 800 ms of 20 ms
			t.Errorf("%d rows with %s", n, row)
		}
	}
}

// TestUDPPortInUse: that is found before the host says that it is armed.
func TestUDPPortInUse(t *testing.T) {
	t.Parallel()
	taken, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	p := loopbackPlan(t)
	rate := int64(1e6)
	p.Flows = []plan.Flow{{
		Name: "flow1", Kind: "udp", SrcHost: "there", DstHost: "here",
		Src: netip.MustParseAddr("127.0.0.1"), Dst: netip.MustParseAddr("127.0.0.1"),
		ServerPort: uint16(taken.LocalAddr().(*net.UDPAddr).Port), ClientPort: 1, Streams: 1,
		Duration: time.Second, RateBps: &rate, PayloadBytes: 1000,
	}}
	p.Hosts["here"] = plan.HostPlan{Actions: []plan.Action{{At: -5 * time.Second, Kind: "udp_receive", Flow: "flow1"}}}
	startAgent(t, p).end("failed", 1, "here: udp_receive flow1", "binding to 127.0.0.1", "address already in use")
}
