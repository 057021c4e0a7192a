package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"dumbbell/agent/hold"
	"dumbbell/agent/plan"

	"golang.org/x/sys/unix"
)

// launchTraced starts an agent under strace, which writes to a file next to
// its directory.
func launchTraced(t *testing.T, dir string, flags ...string) (_ *agent, trace string) {
	t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Fatal("strace is not installed: apt-get install strace")
	}
	trace = filepath.Join(t.TempDir(), "trace")
	by := append([]string{"strace", "-f", "-qq", "--seccomp-bpf", "-y", "-o", trace}, flags...)
	return launchAgent(t, dir, append(by, "--")...), trace
}

// TestDiskErrors lets one kind of system call on one file fail: the run has
// failed, and says why.
func TestDiskErrors(t *testing.T) {
	for _, c := range []struct{ file, call, err, reason string }{
		{"events.jsonl", "write", "EIO", "writing event armed: "},
		{"events.jsonl", "write", "EDQUOT", "disk quota exceeded"},
		{"events.jsonl", "fsync", "EIO", "events.jsonl: input/output error"},
		{"spool.lp", "fsync", "EIO", "syncing the spool: "},
		{"command-flow1-client.txt", "fsync", "EIO", "syncing what the run has left: "},
		{".", "fsync", "EIO", "input/output error"},
	} {
		t.Run(strings.Join([]string{c.file, c.call, c.err}, " "), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			writePlan(t, dir, plainPlan(t))
			a, _ := launchTraced(t, dir, "-P", filepath.Join(dir, c.file), "-e", "trace="+c.call, "-e", "inject="+c.call+":error="+c.err)
			a.start()
			a.await("end", func() bool { return hasEnded(a) })
			if s := a.status(); s.State != "failed" || !strings.Contains(s.Reason, c.reason) {
				t.Errorf("status %+v, want failed and %q", s, c.reason)
			}
			if code := a.cmd.ProcessState.ExitCode(); code != 1 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// TestLastEventCannotBeWritten: a limit is reached while the phase runs.
func TestLastEventCannotBeWritten(t *testing.T) {
	t.Parallel()
	p := plainPlan(t)
	p.Phase = "calibration" // in which the host is not read: that could not be written either
	own := p.Own()
	own = plan.HostPlan{Actions: own.Actions}
	p.Hosts["here"] = own
	a := startAgent(t, p)
	a.start()
	a.await("the command", func() bool { return len(a.events("flow_launched")) > 0 })
	stat, err := os.Stat(filepath.Join(a.dir, "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	limit := unix.Rlimit{Cur: uint64(stat.Size()), Max: uint64(stat.Size())}
	if err := unix.Prlimit(a.cmd.Process.Pid, unix.RLIMIT_FSIZE, &limit, nil); err != nil {
		t.Fatal(err)
	}
	a.await("end", func() bool { return hasEnded(a) })
	if s := a.status(); s.State != "failed" || !strings.Contains(s.Reason, "writing event ") || !strings.Contains(s.Reason, "file too large") {
		t.Errorf("status %+v", s)
	}
	if code := a.cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit code %d", code)
	}
}

// TestLastStatusCannotBeWritten: an agent that cannot say that it is done has failed.
func TestLastStatusCannotBeWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writePlan(t, dir, plainPlan(t))
	a, _ := launchTraced(t, dir, "-P", filepath.Join(dir, "status.json.tmp"), "-e", "trace=fsync", "-e", "inject=fsync:error=EIO")
	a.start()
	a.await("end", func() bool { return hasEnded(a) })
	if s, code := a.status(), a.cmd.ProcessState.ExitCode(); s.State != "running" || code != 1 {
		t.Errorf("status %+v and exit code %d", s, code)
	}
}

// TestIperf3CannotWriteItsReport, of which it says nothing.
func TestIperf3CannotWriteItsReport(t *testing.T) {
	t.Parallel()
	needIperf3(t)
	p := loopbackPlan(t)
	f := &p.Flows[0]
	f.SrcHost = "there"
	own := plan.HostPlan{Actions: p.Own().Actions[:1]}
	p.Hosts["here"] = own
	dir := t.TempDir()
	writePlan(t, dir, p)
	a, _ := launchTraced(t, dir, "-P", filepath.Join(dir, "iperf3-flow1-server.json"), "-e", "trace=write", "-e", "inject=write:error=ENOSPC")
	a.start()
	a.await("the server", func() bool { return a.status().State == "running" && len(a.events("flow_launched")) > 0 })
	client := exec.Command("sh", "-c", "for i in $(seq 100); do iperf3 -c 127.0.0.1 -p $0 -t 1 -b 1M && exit; sleep 0.1; done", fmt.Sprint(f.ServerPort))
	if out, err := client.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	a.end("failed", 1, "iperf3_server flow1: its report is not whole")
}

// TestLockCannotBeWritten: who has the host still has it.
func TestLockCannotBeWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock.json")
	until := time.Now().Add(time.Minute).UnixNano()
	if err := hold.Take(path, hold.Host{RunID: "mine", Owner: "me@here", UntilUnixNs: until}); err != nil {
		t.Fatal(err)
	}
	keep := exec.Command("strace", "-f", "-qq", "-o", "/dev/null", "-P", path, "-e", "trace=pwrite64", "-e", "inject=pwrite64:error=ENOSPC",
		os.Args[0], "lock", "--file", path, "--run", "mine", "--owner", "me@here", "--for", "1h")
	keep.Env = append(os.Environ(), "DUMBBELL_TEST_AS_AGENT=1")
	if out, err := keep.CombinedOutput(); err == nil || !strings.Contains(string(out), "no space left on device") {
		t.Fatalf("%v: %s", err, out)
	}
	if err := hold.Take(path, hold.Host{RunID: "other", UntilUnixNs: until}); err == nil || !strings.Contains(err.Error(), "me@here") {
		t.Errorf("another run is refused with %v", err)
	}
}

func hasEnded(a *agent) bool {
	select {
	case <-a.exited:
		return true
	default:
		return false
	}
}

// plainPlan has a command that leaves files, and samples.
func plainPlan(t *testing.T) *plan.Plan {
	p := loopbackPlan(t)
	f := &p.Flows[0]
	f.Kind, f.CongestionControl, f.RateBps = "command", nil, nil
	own := plan.HostPlan{Actions: []plan.Action{{Kind: "command_client", Flow: "flow1", Argv: []string{
		"sh", "-c", "echo one; mkdir below; echo two > below/two.txt"}}}}
	own.Sample.Qdisc, own.Sample.Link, own.Sample.CPU = true, true, true
	p.Hosts["here"] = own
	return p
}

// TestDoneIsOnDisk follows the files that a run leaves by its system calls.
// When the status says that it is done, all of them are on disk, and at the end
// the status is: power may fail at any time after that.
func TestDoneIsOnDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := plainPlan(t)
	p.Duration = 10 * time.Second // a batch each second, in a file each: the first are compressed
	writePlan(t, dir, p)
	a, trace := launchTraced(t, dir, "-E", "DUMBBELL_TEST_SEGMENT_BYTES=1", "-e", "trace=openat,write,writev,pwrite64,ftruncate,fallocate,"+
		"fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat")
	a.start()
	a.end("done", 0)
	for _, name := range []string{"spool.lp.gz", "spool-2.lp.gz", "below/two.txt", "command-flow1-client.txt"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	b, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	var atDone []string
	d := disk{dir: dir, lacks: make(map[string]bool)}
	for call := range systemCalls(b) {
		if strings.HasPrefix(call, "rename") && strings.Contains(call, `/status.json"`) {
			atDone = d.lacking("entry status.json.tmp", "entry reserve") // what is written or removed for it
		}
		d.follow(t, call)
	}
	if len(atDone) > 0 {
		t.Errorf("not on disk when the status says done: %s", atDone)
	}
	if left := d.lacking(); len(left) > 0 {
		t.Errorf("not on disk at the end: %s", left)
	}
}

// systemCalls yields the system calls that strace tells of when they return.
func systemCalls(trace []byte) func(yield func(string) bool) {
	begun := make(map[string]string) // by process
	return func(yield func(string) bool) {
		for line := range strings.Lines(string(trace)) {
			pid, call, _ := strings.Cut(strings.TrimSpace(line), " ")
			call = strings.TrimSpace(call)
			if start, unfinished := strings.CutSuffix(call, " <unfinished ...>"); unfinished {
				begun[pid] = start
				continue
			}
			if _, rest, resumed := strings.Cut(call, " resumed>"); resumed {
				call = begun[pid] + rest
			}
			if !yield(call) {
				return
			}
		}
	}
}

// A disk lacks what was written to files, and entries of directories, since
// they were last synced.
type disk struct {
	dir   string
	lacks map[string]bool // "content of PATH" and "entry PATH"
}

func (d *disk) lacking(but ...string) (all []string) {
	for what := range d.lacks {
		if !slices.Contains(but, what) {
			all = append(all, what)
		}
	}
	slices.Sort(all)
	return all
}

var (
	callName   = regexp.MustCompile(`^\w+`)
	callFile   = regexp.MustCompile(`^\w+\(\d+<([^>]*)>`) // of its first argument
	callOpened = regexp.MustCompile(`= \d+<([^>]*)>$`)    // returned
	callPaths  = regexp.MustCompile(`(?:\(|, )"([^"]*)"`) // given by name
	callFailed = regexp.MustCompile(`= -1 E[A-Z]+ \(.*\)$`)
)

func (d *disk) follow(t *testing.T, call string) {
	t.Helper()
	if callFailed.MatchString(call) {
		return
	}
	var paths []string // below the directory
	add := func(path string) {
		if below, err := filepath.Rel(d.dir, path); err == nil && filepath.IsLocal(below) {
			paths = append(paths, below)
		}
	}
	name := callName.FindString(call)
	switch name {
	case "openat":
		if m := callOpened.FindStringSubmatch(call); m != nil && strings.Contains(call, "O_CREAT") {
			add(m[1])
		}
	case "rename", "renameat", "renameat2", "unlink", "unlinkat", "mkdir", "mkdirat":
		for _, m := range callPaths.FindAllStringSubmatch(call, -1) {
			path := m[1]
			if !filepath.IsAbs(path) { // the command's, which is started there
				path = filepath.Join(d.dir, path)
			}
			add(path)
		}
	default:
		if m := callFile.FindStringSubmatch(call); m != nil {
			add(m[1])
		}
	}
	if len(paths) == 0 {
		return
	}
	content := func(path string) string { return "content of " + path }
	switch name {
	case "write", "writev", "pwrite64", "ftruncate", "fallocate":
		d.lacks[content(paths[0])] = true
	case "fsync", "fdatasync":
		delete(d.lacks, content(paths[0]))
		for what := range d.lacks {
			if path, isEntry := strings.CutPrefix(what, "entry "); isEntry && filepath.Dir(path) == paths[0] {
				delete(d.lacks, what)
			}
		}
	case "rename", "renameat", "renameat2":
		from, to := paths[0], paths[1]
		if delete(d.lacks, content(to)); d.lacks[content(from)] {
			d.lacks[content(to)] = true
		}
		delete(d.lacks, content(from))
	case "unlink", "unlinkat":
		delete(d.lacks, content(paths[0]))
	}
	switch name {
	case "openat", "rename", "renameat", "renameat2", "unlink", "unlinkat", "mkdir", "mkdirat":
		for _, path := range paths {
			d.lacks["entry "+path] = true
		}
	}
}
