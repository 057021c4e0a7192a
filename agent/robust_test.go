package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"dumbbell/collectors/spool"

	"golang.org/x/sys/unix"
)

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock.json")
	until := time.Now().Add(time.Minute)
	mine := Hold{RunID: "mine", Owner: "me@here", UntilUnixNs: until.UnixNano()}
	for range 2 { // a run may take what it has
		if err := takeHost(path, mine); err != nil {
			t.Fatal(err)
		}
	}
	other := Hold{RunID: "other", Owner: "you@there", UntilUnixNs: until.Add(time.Hour).UnixNano()}
	err := takeHost(path, other)
	if err == nil || !strings.Contains(err.Error(), "run mine of me@here until "+until.UTC().Format(time.RFC3339)) {
		t.Errorf("a second run is refused with %v", err)
	}
	if err := releaseHost(path, "other"); err != nil {
		t.Fatal(err)
	}
	if err := takeHost(path, other); err == nil {
		t.Error("another run has released the host")
	}
	// A phase keeps the host longer and knows no owner.
	if err := takeHost(path, Hold{RunID: "mine", UntilUnixNs: until.Add(time.Minute).UnixNano()}); err != nil {
		t.Fatal(err)
	}
	if err := takeHost(path, other); err == nil || !strings.Contains(err.Error(), "me@here") {
		t.Errorf("the owner is forgotten: %v", err)
	}
	if err := releaseHost(path, "mine"); err != nil {
		t.Fatal(err)
	}
	if err := takeHost(path, other); err != nil {
		t.Error(err)
	}
}

func TestLockThatHoldsNothing(t *testing.T) {
	later := time.Now().Add(time.Hour).UnixNano()
	for name, content := range map[string]string{
		"expired":      fmt.Sprintf(`{"run_id": "old", "until_unix_ns": %d, "boot_id": %q}`, time.Now().Add(-time.Second).UnixNano(), bootID()),
		"another boot": fmt.Sprintf(`{"run_id": "old", "until_unix_ns": %d, "boot_id": "other"}`, later),
		"cut short":    `{"run_id": "old", "unti`,
		"empty":        "",
		"free":         `{"run_id": "", "until_unix_ns": 0}` + "\n" + `old"}`, // behind it, what was there before
	} {
		path := filepath.Join(t.TempDir(), "lock.json")
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := takeHost(path, Hold{RunID: "new", UntilUnixNs: later}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

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
func emptyPlan() *Plan {
	own := HostPlan{}
	own.Sample.Qdisc = true
	return &Plan{
		RunID: "run", Holder: "run", Point: "point", Host: "here", Phase: "measurement",
		Duration: time.Second, SamplingInterval: 20 * time.Millisecond, Hosts: map[string]HostPlan{"here": own},
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
	plan := emptyPlan()
	plan.Duration = time.Minute
	a := startAgent(t, plan)
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
	if err := os.WriteFile(atouToken(a.dir), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	if err := a.finish("killed"); err != nil {
		t.Fatal(err)
	}
	const reason = "the agent was killed while it was running"
	if s, e := a.status(), a.one("failed"); s.State != "failed" || s.Reason != reason || e.Reason != reason {
		t.Errorf("status %+v, event %+v", s, e)
	}
	if _, err := os.Stat(atouToken(a.dir)); !errors.Is(err, fs.ErrNotExist) {
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
	plan := emptyPlan()
	plan.Duration, plan.SamplingInterval = 6*time.Second, time.Millisecond
	writePlan(t, dir, plan)
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

// TestPath changes queues of a network namespace of its own.
func TestPath(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	plan := emptyPlan()
	plan.SamplingInterval = time.Minute // what is seen of a change, it was read back for
	own := plan.Own()
	own.Actions = []Action{
		{At: 200 * time.Millisecond, Kind: "path", Name: "slow", Commands: [][]string{
			{"qdisc", "replace", "dev", "lo", "root", "handle", "1:", "tbf", "rate", "8mbit", "burst", "20kb", "limit", "100kb"}}},
		{At: 600 * time.Millisecond, Kind: "path", Name: "wrong", Commands: [][]string{
			{"qdisc", "change", "dev", "lo", "handle", "1:", "root", "nonsense"}}},
	}
	own.Restore = [][]string{{"qdisc", "del", "dev", "lo", "root"}}
	own.RestoreAt = plan.Duration + 500*time.Millisecond
	plan.Hosts["here"] = own
	dir := t.TempDir()
	writePlan(t, dir, plan)
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
	if e := a.one("path_restored"); !e.OK || e.UnixNs < t0+int64(plan.Duration+500*time.Millisecond) {
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
	plan := emptyPlan()
	own := plan.Own()
	own.Actions = []Action{{At: 0, Kind: "path", Name: "slow", Commands: [][]string{{"qdisc", "replace", "dev", "lo", "root", "pfifo", "limit", "10"}}}}
	own.Restore = [][]string{{"qdisc", "del", "dev", "lo", "root"}}
	plan.Duration = duration
	plan.Hosts["here"] = own
	dir := t.TempDir()
	writePlan(t, dir, plan)
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

func TestPathErrors(t *testing.T) {
	for _, c := range []struct{ commands, want string }{
		{`[]`, "commands: missing"},
		{`[["qdisc", ""]]`, "a word is empty"},
		{`[["qdisc", "show\nqdisc del"]]`, "a word is empty, or has blanks"},
		{`[[]]`, "a word is empty"},
	} {
		plan := strings.Replace(examplePlan, `{"at_ns": 0, "kind": "ping"`,
			`{"at_ns": 7, "kind": "path", "name": "outage", "commands": `+c.commands+`}, {"at_ns": 0, "kind": "ping"`, 1)
		if _, err := ParsePlan([]byte(plan)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.commands, err, c.want)
		}
	}
}
