package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"dumbbell/agent/plan"

	"golang.org/x/sys/unix"
)

// TestPath changes queues of a network namespace of its own.
func TestPath(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	p := emptyPlan()
	p.SamplingInterval = time.Minute // what is seen of a change, it was read back for
	own := p.Own()
	own.Actions = []plan.Action{
		{At: 200 * time.Millisecond, Kind: "path", Name: "slow", Commands: [][]string{
			{"qdisc", "replace", "dev", "lo", "root", "handle", "1:", "tbf", "rate", "8mbit", "burst", "20kb", "limit", "100kb"}}},
		{At: 600 * time.Millisecond, Kind: "path", Name: "wrong", Commands: [][]string{
			{"qdisc", "change", "dev", "lo", "handle", "1:", "root", "nonsense"}}},
	}
	own.Restore = [][]string{{"qdisc", "del", "dev", "lo", "root"}}
	own.RestoreAt = p.Duration + 500*time.Millisecond
	p.Hosts["here"] = own
	dir := t.TempDir()
	writePlan(t, dir, p)
	a := launchAgent(t, dir, "unshare", "--net")
	t0 := a.start()
	a.end("failed", 1, "path wrong: exit status 1", "Command failed -:1")
	changed := a.events("path_changed")
	if len(changed) != 2 || !changed[0].OK || changed[1].OK {
		t.Fatalf("changes %+v", changed)
	}
	for i, at := range []int64{200e6, 600e6} {
		// The upper bound is generous: tests share a machine.
		if e := changed[i]; e.Planned != t0+at || e.Error == nil || *e.Error < 0 || *e.Error > 200e6 {
			t.Errorf("%+v, planned for %d", e, t0+at)
		}
	}
	// The flows have had their time to end over the path as it was.
	if e := a.one("path_restored"); !e.OK || e.UnixNs < t0+int64(p.Duration+500*time.Millisecond) {
		t.Errorf("%+v, t0 is %d", e, t0)
	}
	b, err := os.ReadFile(filepath.Join(dir, "spool.lp"))
	if err != nil || !bytes.Contains(b, []byte("kind=tbf")) {
		t.Errorf("the queue was never seen: %v", err)
	}
	if observed := checkObserved(t, dir); observed.Before.Settings["qdisc lo root"] != observed.After.Settings["qdisc lo root"] {
		t.Errorf("the queue was %q, and is %q", observed.Before.Settings["qdisc lo root"], observed.After.Settings["qdisc lo root"])
	}
}

// A changedPath is an agent in a network of its own, in which it changes a
// queue that it is to restore at the end.
type changedPath struct {
	*agent
	in []string // runs a command in that network
}

func changePath(t *testing.T, duration time.Duration, prepare func(dir string) (by []string)) changedPath {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	network := exec.Command("unshare", "--net", "sh", "-c", "echo; exec sleep 120")
	begun, err := network.StdoutPipe()
	if err == nil {
		err = network.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		network.Process.Kill()
		network.Wait()
	})
	if _, err := begun.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	p := emptyPlan()
	own := p.Own()
	own.Actions = []plan.Action{{At: 0, Kind: "path", Name: "slow", Commands: [][]string{{"qdisc", "replace", "dev", "lo", "root", "pfifo", "limit", "10"}}}}
	own.Restore = [][]string{{"qdisc", "del", "dev", "lo", "root"}}
	p.Duration = duration
	p.Hosts["here"] = own
	dir := t.TempDir()
	writePlan(t, dir, p)
	in := []string{"nsenter", "--net=/proc/" + strconv.Itoa(network.Process.Pid) + "/ns/net"}
	by := slices.Clip(in)
	if prepare != nil {
		by = append(by, prepare(dir)...)
	}
	return changedPath{launchAgent(t, dir, by...), in}
}

func (c changedPath) awaitChange() {
	c.t.Helper()
	c.await("the change", func() bool { return len(c.events("path_changed")) == 1 })
	if q := c.queue(); !strings.Contains(q, "pfifo") {
		c.t.Fatalf("the change is not to be seen: %s", q)
	}
}

// queue is what the kernel says of the queue.
func (c changedPath) queue() string {
	c.t.Helper()
	out, err := exec.Command(c.in[0], append(c.in[1:], "tc", "qdisc", "show", "dev", "lo")...).CombinedOutput()
	if err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// TestPathIsRestoredAfterAbort ends the agent between a change and its end.
// What follows by the unit changes nothing then.
func TestPathIsRestoredAfterAbort(t *testing.T) {
	t.Parallel()
	c := changePath(t, time.Minute, nil)
	c.start()
	c.awaitChange()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	c.end("aborted", 3, "signal")
	if e := c.one("path_restored"); !e.OK {
		t.Errorf("%+v", e)
	}
	if q := c.queue(); strings.Contains(q, "pfifo") {
		t.Errorf("the queue is still %s", q)
	}
	before := c.files()
	if err := c.finish("exited", c.in...); err != nil {
		t.Error(err)
	}
	if after := c.files(); after != before {
		t.Errorf("files were\n%s\nand are\n%s", before, after)
	}
}

// TestPathIsRestoredAfterKill kills the agent between a change and its end, and
// does what systemd does then, which may do it again.
func TestPathIsRestoredAfterKill(t *testing.T) {
	t.Parallel()
	c := changePath(t, time.Minute, nil)
	c.start()
	c.awaitChange()
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-c.exited
	for range 2 {
		if err := c.finish("killed", c.in...); err != nil {
			t.Fatal(err)
		}
		if q := c.queue(); strings.Contains(q, "pfifo") {
			t.Errorf("the queue is still %s", q)
		}
		if e := c.one("path_restored"); !e.OK {
			t.Errorf("%+v", e)
		}
		if s := c.status(); s.State != "failed" || s.Reason != "the agent was killed while it was running" {
			t.Errorf("status %+v", s)
		}
	}
}

// TestPathIsRestoredAfterHang lets an agent hang that waits for its disk.
func TestPathIsRestoredAfterHang(t *testing.T) {
	t.Parallel()
	c := changePath(t, time.Second, func(dir string) []string {
		return []string{"env", "DUMBBELL_TEST_HANG_TIMEOUT=1s", "strace", "-f", "-qq", "--seccomp-bpf", "-o", "/dev/null",
			"-P", filepath.Join(dir, "spool.lp"), "-e", "trace=write", "-e", "inject=write:delay_enter=20s"}
	})
	c.start()
	c.awaitChange()
	<-c.exited
	const reason = "it hung, and was ended 11s after the end of the phase"
	if s, code := c.status(), c.cmd.ProcessState.ExitCode(); s.State != "failed" || s.Reason != reason || code != 1 {
		t.Errorf("status %+v and exit code %d", s, code)
	}
	if err := c.finish("exited", c.in...); err != nil {
		t.Fatal(err)
	}
	if q := c.queue(); strings.Contains(q, "pfifo") {
		t.Errorf("the queue is still %s", q)
	}
	if s := c.status(); s.State != "failed" || s.Reason != reason {
		t.Errorf("status %+v", s)
	}
}

// TestHangThatCannotBeTold: the agent hangs at an event, a pipe that nobody
// reads, and ends without a status.
func TestHangThatCannotBeTold(t *testing.T) {
	t.Parallel()
	var pipe *os.File
	c := changePath(t, 2*time.Second, func(dir string) []string {
		path := filepath.Join(dir, "events.jsonl")
		err := unix.Mkfifo(path, 0o644)
		if err == nil {
			pipe, err = os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		return []string{"env", "DUMBBELL_TEST_HANG_TIMEOUT=1s"}
	})
	defer pipe.Close()
	c.start()
	for lines := bufio.NewScanner(pipe); !strings.Contains(lines.Text(), "path_changed"); {
		if !lines.Scan() {
			t.Fatal(lines.Err())
		}
	}
	if err := pipe.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := pipe.Write(make([]byte, 1<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("filling the pipe: %v", err)
	}
	<-c.exited
	if s, code := c.status(), c.cmd.ProcessState.ExitCode(); s.State != "running" || code != 1 {
		t.Errorf("status %+v and exit code %d", s, code)
	}
	go io.Copy(io.Discard, pipe)
	if err := c.finish("exited", append(c.in, "env", "EXIT_STATUS=1")...); err != nil {
		t.Fatal(err)
	}
	if q := c.queue(); strings.Contains(q, "pfifo") {
		t.Errorf("the queue is still %s", q)
	}
	if s := c.status(); s.State != "failed" || !strings.HasPrefix(s.Reason, "the agent ended with status 1 while it was running") {
		t.Errorf("status %+v", s)
	}
}
