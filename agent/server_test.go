package main

import (
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestLead: who only waits needs little time, who connects needs more, unless its flow starts later.
func TestLead(t *testing.T) {
	for name, c := range map[string]struct {
		actions []Action
		want    time.Duration
	}{
		"nothing":        {nil, 500 * time.Millisecond},
		"servers":        {[]Action{{At: -5 * time.Second, Kind: "iperf3_server"}, {At: -time.Second, Kind: "capture"}}, 500 * time.Millisecond},
		"ping":           {[]Action{{Kind: "ping"}}, 500 * time.Millisecond},
		"client":         {[]Action{{Kind: "ping"}, {Kind: "iperf3_client"}}, 3 * time.Second},
		"atou":           {[]Action{{Kind: "atou_send"}}, 3 * time.Second},
		"later":          {[]Action{{At: 2 * time.Second, Kind: "iperf3_client"}, {At: 5 * time.Second, Kind: "iperf3_client"}}, time.Second},
		"much later":     {[]Action{{At: time.Minute, Kind: "iperf3_client"}}, 500 * time.Millisecond},
		"path":           {[]Action{{At: 100 * time.Millisecond, Kind: "path"}}, 900 * time.Millisecond},
		"a path that is": {[]Action{{At: time.Minute, Kind: "path"}}, 500 * time.Millisecond},
	} {
		plan := emptyPlan()
		plan.Hosts["here"] = HostPlan{Actions: c.actions} // without its samples
		if got := plan.lead(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	// What is sampled begins before t0.
	if plan := emptyPlan(); plan.samplingLead() != 2010*time.Millisecond || plan.lead() != 2260*time.Millisecond {
		t.Errorf("sampling begins %v ahead, and the agent needs %v", plan.samplingLead(), plan.lead())
	}
}

// TestServersWait: they are there when the agent is armed, and stay for as long as the start takes.
func TestServersWait(t *testing.T) {
	t.Parallel()
	needIperf3(t)
	plan := loopbackPlan(t)
	a := startAgent(t, plan)
	a.await("arming", func() bool { return a.status().State == "armed" })
	if launched := a.one("flow_launched"); launched.Action != "iperf3_server" || launched.UnixNs > a.one("armed").UnixNs {
		t.Errorf("launched %+v, armed %+v", launched, a.one("armed"))
	}
	if lead := time.Duration(a.status().Lead); lead != clientLead {
		t.Errorf("it needs %v", lead)
	}
	time.Sleep(5 * time.Second) // a controller that waits for other hosts
	a.start()
	a.end("done", 0)
	if held := a.one("flow_held"); !held.Held {
		t.Errorf("held %+v", held)
	}
}

// TestServersEndWithoutStart: a controller that vanished leaves nothing behind.
func TestServersEndWithoutStart(t *testing.T) {
	t.Parallel()
	needIperf3(t)
	dir := t.TempDir()
	writePlan(t, dir, loopbackPlan(t))
	a := launchAgent(t, dir, "env", "DUMBBELL_TEST_ARM_TIMEOUT=1s")
	a.await("arming", func() bool { return a.status().State == "armed" })
	children := a.children()
	if len(children) != 1 {
		t.Errorf("%d children, want a server", len(children))
	}
	a.end("aborted", 3, "no start came within 1s of arming")
	checkGone(t, children, 0)
}

// TestServerThatEndsEarly is a failure before the start, by its own last words.
func TestServerThatEndsEarly(t *testing.T) {
	t.Parallel()
	needIperf3(t)
	t.Run("port in use", func(t *testing.T) {
		t.Parallel()
		plan := loopbackPlan(t)
		taken, err := net.Listen("tcp4", fmt.Sprint("127.0.0.1:", plan.Flows[0].ServerPort))
		if err != nil {
			t.Fatal(err)
		}
		defer taken.Close()
		a := startAgent(t, plan)
		a.end("failed", 1, "iperf3_server flow1", "Address already in use")
		if e := a.one("process_exit"); e.Action != "iperf3_server" || !strings.Contains(e.Stderr, "Address already in use") {
			t.Errorf("process_exit %+v", e)
		}
	})
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		a := startAgent(t, loopbackPlan(t))
		a.await("arming", func() bool { return a.status().State == "armed" })
		for _, pid := range a.children() {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		a.end("failed", 1, "iperf3_server flow1: signal: killed")
		if _, err := os.Stat(a.dir + "/start.json"); err == nil {
			t.Error("it was started")
		}
	})
}
