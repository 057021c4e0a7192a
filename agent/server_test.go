package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestServersWait: they are there when the agent is armed, and stay for as long as the start takes.
func TestServersWait(t *testing.T) {
	t.Parallel()
	needIperf3(t)
	p := loopbackPlan(t)
	a := startAgent(t, p)
	a.await("arming", func() bool { return a.status().State == "armed" })
	if launched := a.one("flow_launched"); launched.Action != "iperf3_server" || launched.UnixNs > a.one("armed").UnixNs {
		t.Errorf("launched %+v, armed %+v", launched, a.one("armed"))
	}
	if lead := time.Duration(a.status().Lead); lead != 3*time.Second {
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
		p := loopbackPlan(t)
		taken, err := net.Listen("tcp4", fmt.Sprint("127.0.0.1:", p.Flows[0].ServerPort))
		if err != nil {
			t.Fatal(err)
		}
		defer taken.Close()
		a := startAgent(t, p)
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

// TestSlowServer: a host is armed when its servers listen, so no client comes too early.
func TestSlowServer(t *testing.T) {
	t.Parallel()
	needIperf3(t)
	programs, dir := t.TempDir(), t.TempDir()
	slow := "#!/bin/sh\n[ \"$1\" != -s ] || sleep 1\nPATH=" + os.Getenv("PATH") + " exec iperf3 \"$@\"\n"
	if err := os.WriteFile(filepath.Join(programs, "iperf3"), []byte(slow), 0o755); err != nil {
		t.Fatal(err)
	}
	writePlan(t, dir, loopbackPlan(t))
	a := launchAgent(t, dir, "env", "PATH="+programs+":"+os.Getenv("PATH"))
	a.start()
	a.end("done", 0)
}
