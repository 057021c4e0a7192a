package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"dumbbell/agent/journal"
	"dumbbell/agent/plan"
	"dumbbell/collectors/clock"
	"dumbbell/collectors/spool"
	"dumbbell/collectors/trace"
)

// TestMain lets the test binary be the agent, so that the tests drive a real
// process by real files and signals.
func TestMain(m *testing.M) {
	if os.Getenv("DUMBBELL_TEST_AS_AGENT") != "" {
		if n, err := strconv.ParseInt(os.Getenv("DUMBBELL_TEST_SEGMENT_BYTES"), 10, 64); err == nil {
			spool.SegmentBytes = n
		}
		if d, err := time.ParseDuration(os.Getenv("DUMBBELL_TEST_HANG_TIMEOUT")); err == nil {
			hangTimeout = d
		}
		if d, err := time.ParseDuration(os.Getenv("DUMBBELL_TEST_ARM_TIMEOUT")); err == nil {
			armTimeout = d
		}
		main()
		return
	}
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		flag.Set("test.parallel", "6") // agents mostly wait, also where there are few processors
	}
	code := m.Run()
	for _, dir := range removeAtEnd {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

var removeAtEnd []string // directories of all tests together

// freePort returns a port that nobody uses and that nobody will be given.
func freePort(t *testing.T) uint16 { return freePorts(t, 1) }

// freePorts returns the first of n consecutive ones.
func freePorts(t *testing.T, n uint16) uint16 {
	t.Helper()
	portsMu.Lock()
	defer portsMu.Unlock()
	for port, free := nextPort, uint16(0); port < 32000; port++ {
		l, err := net.Listen("tcp", fmt.Sprint(":", port))
		if err != nil {
			free = 0
			continue
		}
		l.Close()
		if free++; free == n {
			nextPort = port + 1
			return port + 1 - n
		}
	}
	t.Fatal("no free port")
	return 0
}

var (
	portsMu  sync.Mutex
	nextPort = uint16(20000 + os.Getpid()%8000)
)

// loopbackPlan has one flow from this host to itself.
func loopbackPlan(t *testing.T) *plan.Plan {
	cubic := "cubic"
	rate := int64(50e6)
	p := &plan.Plan{
		RunID: "run", Holder: "run", Point: "point", Host: "here", Phase: "measurement",
		Duration: 1200 * time.Millisecond, SamplingInterval: 20 * time.Millisecond,
		Flows: []plan.Flow{{
			Name: "flow1", Kind: "iperf3_tcp", SrcHost: "here", DstHost: "here",
			Src: netip.MustParseAddr("127.0.0.1"), Dst: netip.MustParseAddr("127.0.0.1"),
			ServerPort: freePort(t), ClientPort: freePort(t), Streams: 1, Duration: time.Second,
			CongestionControl: &cubic, RateBps: &rate,
		}},
	}
	var own plan.HostPlan
	own.Actions = []plan.Action{
		{At: -5 * time.Second, Kind: "iperf3_server", Flow: "flow1"},
		{At: 0, Kind: "iperf3_client", Flow: "flow1"},
	}
	own.Sample.TCP = []string{"flow1"}
	own.Sample.Qdisc, own.Sample.Link, own.Sample.SNMP, own.Sample.CPU, own.Sample.Clock = true, true, true, true, true
	own.Sample.Trace, own.Sample.EBPF = canTrace(), true
	p.Hosts = map[string]plan.HostPlan{"here": own}
	return p
}

// canTrace tells whether this process may trace the kernel.
var canTrace = sync.OnceValue(func() bool {
	clock, err := clock.New()
	if err != nil {
		return false
	}
	t, err := trace.NewSource(nil, nil, clock, "")
	return err == nil && t.Close() == nil
})

// writePlan omits the keys that an action does not have, as a planner does.
func writePlan(t *testing.T, dir string, p *plan.Plan) {
	t.Helper()
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "plan.json"), b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// An agent is a running dumbbell-agent.
type agent struct {
	t      *testing.T
	dir    string
	cmd    *exec.Cmd
	exited chan struct{}
}

func startAgent(t *testing.T, p *plan.Plan, lock ...string) *agent {
	t.Helper()
	dir := t.TempDir()
	writePlan(t, dir, p)
	return launch(t, dir, append([]string{os.Args[0], "run", dir}, lock...))
}

// launchAgent starts an agent in a directory that has a plan, by another
// program if one is given.
func launchAgent(t *testing.T, dir string, by ...string) *agent {
	t.Helper()
	return launch(t, dir, append(by, os.Args[0], "run", dir))
}

func launch(t *testing.T, dir string, args []string) *agent {
	t.Helper()
	a := &agent{t: t, dir: dir, exited: make(chan struct{})}
	a.cmd = exec.Command(args[0], args[1:]...)
	a.cmd.Env = append(os.Environ(), "DUMBBELL_TEST_AS_AGENT=1")
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		a.cmd.Wait()
		close(a.exited)
	}()
	t.Cleanup(func() {
		a.cmd.Process.Kill()
		<-a.exited
	})
	return a
}

func (a *agent) status() (s journal.Status) {
	a.t.Helper()
	b, err := os.ReadFile(filepath.Join(a.dir, "status.json"))
	if errors.Is(err, os.ErrNotExist) {
		return s
	}
	if err != nil {
		a.t.Fatal(err)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		a.t.Fatalf("status.json is not whole: %v: %q", err, b)
	}
	return s
}

type event struct {
	UnixNs  int64 `json:"unix_ns"`
	MonoNs  int64 `json:"mono_ns"`
	Event   string
	Flow    string
	Held    bool
	Reason  string
	Sent    uint64 `json:"bytes_sent"`
	Planned int64  `json:"planned_unix_ns"`
	OK      bool   `json:"ok"`
	Error   *int64 `json:"error_ns"`
	Name    string
	Action  string
	Code    int
	Stderr  string
	Sampled int
	Ticks   int
	Missed  int
	Median  int64 `json:"achieved_interval_ns"`
	Records int64
	Lost    int64
	Packets int
	Dropped int
}

// events returns all events of a name so far.
func (a *agent) events(name string) (all []event) {
	a.t.Helper()
	b, err := os.ReadFile(filepath.Join(a.dir, "events.jsonl"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		a.t.Fatal(err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			a.t.Fatalf("event %q: %v", lines.Text(), err)
		}
		if e.Event == name {
			all = append(all, e)
		}
	}
	return all
}

func (a *agent) one(name string) event {
	a.t.Helper()
	all := a.events(name)
	if len(all) != 1 {
		b, _ := os.ReadFile(filepath.Join(a.dir, "events.jsonl"))
		a.t.Fatalf("%d events %s in\n%s", len(all), name, b)
	}
	return all[0]
}

// await waits for a condition, as long as the agent lives.
func (a *agent) await(what string, condition func() bool) {
	a.t.Helper()
	a.awaitFor(20*time.Second, what, condition)
}

func (a *agent) awaitFor(patience time.Duration, what string, condition func() bool) {
	a.t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(5 * time.Millisecond) {
		select {
		case <-a.exited:
			if !condition() {
				a.t.Fatalf("the agent ended before %s: %+v", what, a.status())
			}
		default:
		}
		if time.Now().After(deadline) {
			a.t.Fatalf("no %s within %v: %+v", what, patience, a.status())
		}
	}
}

// start waits until the agent is armed and starts it as soon as it can be, and
// a little later.
func (a *agent) start() (t0 int64) {
	a.t.Helper()
	a.await("arming", func() bool { return a.status().State == "armed" })
	return a.startIn(time.Duration(a.status().Lead) + 500*time.Millisecond)
}

// startIn starts it at a time from when it is armed.
func (a *agent) startIn(ahead time.Duration) (t0 int64) {
	a.t.Helper()
	a.await("arming", func() bool { return a.status().State == "armed" })
	t0 = time.Now().Add(ahead).UnixNano()
	tmp := filepath.Join(a.dir, "start.tmp")
	if err := os.WriteFile(tmp, fmt.Appendf(nil, `{"t0_unix_ns": %d}`, t0), 0o644); err != nil {
		a.t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(a.dir, "start.json")); err != nil {
		a.t.Fatal(err)
	}
	return t0
}

// end waits for the agent to end and checks how it did.
func (a *agent) end(state string, code int, reasons ...string) {
	a.t.Helper()
	select {
	case <-a.exited:
	case <-time.After(30 * time.Second):
		a.t.Fatalf("the agent still runs: %+v", a.status())
	}
	status := a.status()
	if status.State != state || a.cmd.ProcessState.ExitCode() != code {
		a.t.Errorf("status %+v and exit code %d, want %s and %d", status, a.cmd.ProcessState.ExitCode(), state, code)
	}
	for _, reason := range reasons {
		if !strings.Contains(status.Reason, reason) {
			a.t.Errorf("reason %q does not say %q", status.Reason, reason)
		}
	}
	if len(reasons) == 0 && status.Reason != "" {
		a.t.Errorf("reason %q", status.Reason)
	}
	if e := a.one(state); e.Reason != status.Reason {
		a.t.Errorf("event says %q, status %q", e.Reason, status.Reason)
	}
}

// children are the processes that the agent has started and that still exist.
func (a *agent) children() (pids []int) {
	a.t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", a.cmd.Process.Pid))
	if err != nil {
		a.t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // that thread has ended
		}
		for _, s := range strings.Fields(string(b)) {
			pid, err := strconv.Atoi(s)
			if err != nil {
				a.t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

func checkGone(t *testing.T, pids []int, patience time.Duration) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for _, pid := range pids {
		for {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if err != nil || !bytes.Contains(b, []byte("(iperf3)")) || bytes.Contains(b, []byte(") Z")) {
				break
			}
			if time.Now().After(deadline) {
				t.Errorf("process %d is left: %s", pid, b)
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}
