package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"dumbbell/agent/kind"
	"dumbbell/agent/plan"
	"dumbbell/collectors/spool"

	"golang.org/x/sys/unix"
)

// TestRunIsRefused: an agent says before it is armed who has the host.
func TestRunIsRefused(t *testing.T) {
	t.Parallel()
	lock := filepath.Join(t.TempDir(), "lock.json")
	take := exec.Command(os.Args[0], "lock", "--file", lock, "--run", "first", "--owner", "me@here", "--for", "1m")
	take.Env = append(os.Environ(), "DUMBBELL_TEST_AS_AGENT=1")
	if out, err := take.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	a := startAgent(t, emptyPlan(), lock)
	a.end("failed", 1, "here: the host belongs to run first of me@here until")
	if armed := a.events("armed"); len(armed) != 0 {
		t.Errorf("armed %+v", armed)
	}
}

// emptyPlan is a phase in which the agent samples qdiscs.
func emptyPlan() *plan.Plan {
	own := plan.HostPlan{}
	own.Sample.Qdisc = true
	return &plan.Plan{
		RunID: "run", Holder: "run", Point: "point", Host: "here", Phase: "measurement",
		Duration: time.Second, SamplingInterval: 20 * time.Millisecond, Hosts: map[string]plan.HostPlan{"here": own},
	}
}

// finish runs what systemd does after the agent, by the agent's unit, and
// returns what it said.
func (a *agent) finish(how string, by ...string) error {
	a.t.Helper()
	unit, err := os.ReadFile("../roles/agent/templates/agent.service.j2")
	if err != nil {
		a.t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^ExecStopPost=/usr/local/bin/dumbbell-agent (\w+) /var/lib/dumbbell/runs/%I$`).FindSubmatch(unit)
	if command == nil {
		a.t.Fatal("the unit does nothing after the agent")
	}
	args := append(by, os.Args[0], string(command[1]), a.dir)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "DUMBBELL_TEST_AS_AGENT=1", "EXIT_CODE="+how)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// TestKilled kills an agent, and does what systemd does then.
func TestKilled(t *testing.T) {
	t.Parallel()
	p := emptyPlan()
	p.Duration = time.Minute
	a := startAgent(t, p)
	a.start()
	path := filepath.Join(a.dir, "spool.lp")
	a.await("rows of a running phase in the spool", func() bool {
		b, err := os.ReadFile(path)
		return err == nil && bytes.Contains(b, []byte("# batch=")) && a.status().State == "running"
	})
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-a.exited
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString("qdisc,dev=lo half a ro")
	f.Close()
	events, err := os.OpenFile(filepath.Join(a.dir, "events.jsonl"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	events.WriteString(`{"unix_ns": 17`)
	events.Close()
	if err := os.WriteFile(kind.TokenFile(a.dir), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	if err := a.finish("killed"); err != nil {
		t.Fatal(err)
	}
	const reason = "the agent was killed while it was running"
	if s, e := a.status(), a.one("failed"); s.State != "failed" || s.Reason != reason || e.Reason != reason {
		t.Errorf("status %+v, event %+v", s, e)
	}
	if _, err := os.Stat(kind.TokenFile(a.dir)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the token is still there: %v", err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if done, err := spool.Scan(bytes.NewReader(b), 1); err != nil || done.Rows == 0 {
		t.Errorf("spool %+v, %v", done, err)
	}
	checkObserved(t, a.dir)
}

// TestIperf3Dies: its last words are those of the signal that ended it.
func TestIperf3Dies(t *testing.T) {
	t.Parallel()
	needIperf3(t)
	a := startAgent(t, loopbackPlan(t))
	a.start()
	a.await("first data", func() bool { return len(a.events("flow_first_data")) > 0 })
	for _, pid := range a.children() {
		args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // another child, which has ended since
		}
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(args, []byte("\x00-c\x00")) { // the server then ends by itself
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	a.end("failed", 1, "iperf3_client flow1: signal: killed")
	for _, e := range a.events("process_exit") {
		if e.Action == "iperf3_client" && e.Code != -1 {
			t.Errorf("%+v", e)
		}
	}
}

// TestDiskFull lets the spool fill a disk: the run goes on, and what was lost
// is counted in the status, for which there is room.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=320k"); err != nil {
		t.Skipf("a small file system cannot be mounted: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	p := emptyPlan()
	p.Duration, p.SamplingInterval = 6*time.Second, time.Millisecond
	writePlan(t, dir, p)
	a := launchAgent(t, dir)
	a.start()
	a.end("failed", 1, "rows are not in the spool", "no space left on device")
	if e := a.one("sampler"); e.Sampled < 500 {
		t.Errorf("sampling did not go on: %+v", e)
	}
	b, err := os.ReadFile(filepath.Join(dir, "spool.lp"))
	if err != nil {
		t.Fatal(err)
	}
	if done, err := spool.Scan(bytes.NewReader(b), 1); err != nil || done.Rows == 0 {
		t.Errorf("spool %+v, %v", done, err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*.tmp")); err != nil || left != nil {
		t.Errorf("half written files are left: %q, %v", left, err)
	}
}

// files are the names and times of all files.
func (a *agent) files() string {
	a.t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(a.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		fmt.Fprintln(&all, path, info.Size(), info.ModTime())
		return err
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return all.String()
}
