package main

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"dumbbell/agent/plan"
)

func TestLateStart(t *testing.T) {
	t.Parallel()
	needIperf3(t)
	a := startAgent(t, loopbackPlan(t))
	t0 := a.startIn(time.Second)
	a.end("failed", 1, "start arrived ", "ms too late")
	var late int64
	if _, err := fmt.Sscanf(a.status().Reason, "start arrived %d ms", &late); err != nil {
		t.Errorf("reason %q: %v", a.status().Reason, err)
	}
	// A client needs 3 s. A busy machine may take a while to read a start.
	if over := late - 3000 + (t0-a.one("start_received").UnixNs)/1e6; late < 2000 || over < -1 || over >= 100 { // both are cut to ms
		t.Errorf("%d ms too late, %d ms beyond what it was when it was read", late, over)
	}
	if launched := a.events("flow_launched"); len(launched) != 1 || launched[0].Action != "iperf3_server" {
		t.Errorf("launched %+v", launched)
	}
}

func TestUnknownCongestionControl(t *testing.T) {
	for name, p := range map[string]func(*testing.T) *plan.Plan{"flow1": loopbackPlan, "web": httpPlan} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "flow1" {
				needIperf3(t)
			}
			p := p(t)
			unknown := "frugal"
			p.Flows[0].CongestionControl = &unknown
			a := startAgent(t, p)
			a.end("failed", 1, "here: "+name, `"frugal"`, "available are", "cubic")
			if armed := a.events("armed"); len(armed) != 0 {
				t.Errorf("armed %+v", armed)
			}
		})
	}
}

func TestBadPlan(t *testing.T) {
	t.Parallel()
	p := loopbackPlan(t)
	p.Duration = 0
	startAgent(t, p).end("failed", 1, "plan.json: duration_ns: must be positive")
}

// TestEnd ends the agent while its client is held, which is when a child could
// most easily be left behind: a stopped process ignores SIGTERM.
func TestEnd(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			needIperf3(t)
			a := startAgent(t, loopbackPlan(t))
			a.start()
			a.await("hold", func() bool { return len(a.events("flow_held")) > 0 })
			children := a.children()
			if len(children) != 2 {
				t.Fatalf("%d children, want a server and a client", len(children))
			}
			if err := a.cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if signal == syscall.SIGTERM {
				a.end("aborted", 3, "signal")
				checkGone(t, children, 0)
			} else {
				<-a.exited
				checkGone(t, children, 5*time.Second)
			}
		})
	}
}

func TestAbortWhileArmed(t *testing.T) {
	t.Parallel()
	needIperf3(t)
	a := startAgent(t, loopbackPlan(t))
	a.await("arming", func() bool { return a.status().State == "armed" })
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	a.end("aborted", 3, "signal")
}
