package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"dumbbell/collectors/sample"
	"dumbbell/collectors/spool"
	"dumbbell/collectors/trace"
	"dumbbell/traffic/http"
	"dumbbell/traffic/udp"

	"github.com/influxdata/line-protocol/v2/lineprotocol"
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

func needIperf3(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("iperf3"); err != nil {
		t.Skip("iperf3 is not installed: apt-get install iperf3")
	}
}

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
func loopbackPlan(t *testing.T) *Plan {
	cubic := "cubic"
	rate := int64(50e6)
	plan := &Plan{
		RunID: "run", Holder: "run", Point: "point", Host: "here", Phase: "measurement",
		Duration: 1200 * time.Millisecond, SamplingInterval: 20 * time.Millisecond,
		Flows: []Flow{{
			Name: "flow1", Kind: "iperf3_tcp", SrcHost: "here", DstHost: "here",
			Src: netip.MustParseAddr("127.0.0.1"), Dst: netip.MustParseAddr("127.0.0.1"),
			ServerPort: freePort(t), ClientPort: freePort(t), Streams: 1, Duration: time.Second,
			CongestionControl: &cubic, RateBps: &rate,
		}},
	}
	var own HostPlan
	own.Actions = []Action{
		{At: -5 * time.Second, Kind: "iperf3_server", Flow: "flow1"},
		{At: 0, Kind: "iperf3_client", Flow: "flow1"},
	}
	own.Sample.TCP = []string{"flow1"}
	own.Sample.Qdisc, own.Sample.Link, own.Sample.SNMP, own.Sample.CPU, own.Sample.Clock = true, true, true, true, true
	own.Sample.Trace, own.Sample.EBPF = canTrace(), true
	plan.Hosts = map[string]HostPlan{"here": own}
	return plan
}

// canTrace tells whether this process may trace the kernel.
var canTrace = sync.OnceValue(func() bool {
	clock, err := sample.NewClock()
	if err != nil {
		return false
	}
	t, err := trace.NewSource(nil, nil, clock, "")
	return err == nil && t.Close() == nil
})

// writePlan omits the keys that an action does not have, as a planner does.
func writePlan(t *testing.T, dir string, plan *Plan) {
	t.Helper()
	b, err := json.Marshal(plan)
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

func startAgent(t *testing.T, plan *Plan, lock ...string) *agent {
	t.Helper()
	dir := t.TempDir()
	writePlan(t, dir, plan)
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

func (a *agent) status() (s Status) {
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

func TestRunTCP(t *testing.T) {
	for _, streams := range []int{1, 3} {
		t.Run(fmt.Sprint(streams, " streams"), func(t *testing.T) {
			t.Parallel()
			needIperf3(t)
			plan := loopbackPlan(t)
			plan.Flows[0].Streams = streams
			plan.Flows[0].ClientPort = freePorts(t, uint16(streams))
			connect := -500 * time.Millisecond
			plan.Flows[0].Connect = &connect
			a := startAgent(t, plan)
			t0 := a.start()
			a.end("done", 0)
			if s := a.status(); !strings.HasPrefix(s.Iperf3, "iperf 3") {
				t.Errorf("iperf3 version %q", s.Iperf3)
			}
			if launched := a.events("flow_launched"); len(launched) != 2 {
				t.Errorf("launched %+v", launched)
			}
			held := a.one("flow_held")
			if !held.Held || held.Sent != cookieBytes || held.UnixNs < t0+int64(connect) || held.UnixNs >= t0 {
				t.Errorf("held %+v, t0 is %d", held, t0)
			}
			for _, name := range []string{"flow_released", "flow_first_data"} {
				e := a.one(name)
				if e.Error == nil {
					t.Fatalf("%s without an error: %+v", name, e)
				}
				t.Logf("%s %v after the planned time", name, time.Duration(*e.Error))
				// The upper bound is generous: tests share a machine.
				if e.Planned != t0 || *e.Error < 0 || *e.Error > 200e6 {
					t.Errorf("%s: planned %d, error %d ns, want %d and 0 to 200 ms", name, e.Planned, *e.Error, t0)
				}
			}
			if e := a.one("flow_congestion_control"); e.Name != "cubic" {
				t.Errorf("congestion control %q", e.Name)
			}
			sampler := a.one("sampler")
			ticks := int((plan.samplingLead() + plan.Duration + plan.SamplingInterval/2) / plan.SamplingInterval)
			if sampler.Ticks != ticks || sampler.Sampled+sampler.Missed != ticks || sampler.Sampled < ticks/2 || sampler.Median < 15e6 || sampler.Median > 40e6 {
				t.Errorf("sampler %+v", sampler)
			}
			checkSpool(t, a, t0, streams)
			for _, side := range []string{"client", "server"} {
				b, err := os.ReadFile(filepath.Join(a.dir, "iperf3-flow1-"+side+".json"))
				var report struct {
					End struct {
						Sent struct{ Bytes int64 } `json:"sum_sent"`
						Recv struct{ Bytes int64 } `json:"sum_received"`
					}
				}
				if err != nil || json.Unmarshal(b, &report) != nil || report.End.Recv.Bytes == 0 {
					t.Errorf("%s: %v: %s", side, err, b)
				}
			}
		})
	}
}

// checkSpool checks that every end of every stream was sampled, when it was,
// and that what one side sent the other received.
func checkSpool(t *testing.T, a *agent, t0 int64, streams int) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(a.dir, "spool.lp"))
	if err != nil {
		t.Fatal(err)
	}
	if done, err := spool.Scan(bytes.NewReader(b), 1); err != nil || done.Bytes != int64(len(b)) {
		t.Fatalf("spool: %+v, %v", done, err)
	}
	rows := make(map[string]int)
	most := make(map[string]int64)
	finals, counted := make(map[string]int), make(map[string]int)
	d := lineprotocol.NewDecoderWithBytes(b)
	for d.Next() {
		measurement, err := d.Measurement()
		if err != nil {
			t.Fatal(err)
		}
		tags := make(map[string]string)
		for {
			k, v, err := d.NextTag()
			if err != nil {
				t.Fatal(err)
			}
			if k == nil {
				break
			}
			tags[string(k)] = string(v)
		}
		if tags["run"] != "run" || tags["point"] != "point" || tags["phase"] != "measurement" || tags["host"] != "here" {
			t.Fatalf("tags %v", tags)
		}
		key := string(measurement) + " " + tags["side"] + " " + tags["stream"]
		rows[key]++
		mono, isFinal, limited := false, false, int64(0)
		for {
			k, v, err := d.NextField()
			if err != nil {
				t.Fatal(err)
			}
			if k == nil {
				break
			}
			if name := string(k); name == "bytes_acked" && tags["side"] == "sender" || name == "bytes_received" && tags["side"] == "receiver" {
				most[key] = max(most[key], v.IntV())
			}
			if string(k) == "SndLimTimeSnd" {
				limited = v.IntV() * int64(time.Microsecond)
			}
			mono = mono || string(k) == "mono_ns"
			isFinal = isFinal || string(k) == "final"
			if string(k) == "dup_acks_in" {
				counted[key]++
			}
		}
		stamp, err := d.Time(lineprotocol.Nanosecond, time.Time{})
		end := t0 + int64(3*time.Second)
		if isFinal {
			finals[key]++
			end += int64(gracePeriod) // connections are closed after the last tick
		}
		begin := t0 - int64(2010*time.Millisecond)
		if strings.HasPrefix(key, "tcp_probe") || strings.HasPrefix(key, "tcp_event") {
			begin = t0 - int64(launchLead) // a held client has connected
			end += int64(gracePeriod)
		}
		if strings.HasPrefix(key, "trace") || strings.HasPrefix(key, "web100") {
			end += int64(gracePeriod)
		}
		if err != nil || !mono || stamp.UnixNano() < begin || stamp.UnixNano() > end {
			t.Fatalf("stamp %v (t0 %v), mono_ns %v, error %v", stamp, time.Unix(0, t0), mono, err)
		}
		if most := stamp.UnixNano() - t0 + int64(20*time.Millisecond); limited > max(0, most) { // a few jiffies
			t.Errorf("%s: SndLimTimeSnd is %v, more than the %v since the flow's start", key, time.Duration(limited), time.Duration(most))
		}
	}
	if !regexp.MustCompile(`(?m)^web100,.*grade=exact.*side=sender.*[ ,]SegsOut=\d`).Match(b) {
		t.Error("no exact totals of a sender whose end was seen")
	}
	want := []string{"qdisc  ", "link  ", "snmp  ", "cpu_core  ", "clock  ", "sampler  ", "web100 sender 0", "web100 receiver 0"}
	if canTrace() {
		if !regexp.MustCompile(`(?m)^web100,.*side=sender.*[ ,]SlowStart=\d`).Match(b) || a.one("trace").Records == 0 || a.one("trace").Lost != 0 {
			t.Error("the trace is not counted, or not whole")
		}
		want = append(want, "tcp_probe sender 0", "tcp_probe receiver 0", "tcp_event sender 0", "trace  ")
	}
	for _, key := range want {
		if rows[key] == 0 && key != "qdisc  " { // this machine may have none
			t.Errorf("no row of %s: %v", key, rows)
		}
	}
	for stream := range streams {
		for _, side := range []string{"sender", "receiver"} {
			key := fmt.Sprintf("tcp_info %s %d", side, stream)
			if rows[key] < 20 || most[key] < 500_000 {
				t.Errorf("%s: %d rows up to %d bytes", key, rows[key], most[key])
			}
			if finals[key] != 1 {
				t.Errorf("%s: %d final rows", key, finals[key])
			}
			// Without eBPF there are no counters instead of zeros, and it is said why.
			missing := slices.ContainsFunc(a.events("collector_unavailable"), func(e event) bool { return e.Name == "ebpf" && e.Reason != "" })
			if (counted[key] == 0) != missing || !missing && counted[key] < rows[key]/2 {
				t.Errorf("%s: counters in %d of %d rows, said to be missing: %v", key, counted[key], rows[key], missing)
			}
		}
	}
}

// TestOptions reads the options of an iperf3 test back from its report.
func TestOptions(t *testing.T) {
	t.Parallel()
	needIperf3(t)
	plan := loopbackPlan(t)
	pacing, mss, buffer, dscp := int64(40e6), 1400, int64(65536), 46
	f := &plan.Flows[0]
	f.Options, f.RateBps = Options{&pacing, &mss, &buffer, &dscp}, nil
	a := startAgent(t, plan)
	a.start()
	a.end("done", 0)
	b, err := os.ReadFile(filepath.Join(a.dir, "iperf3-flow1-client.json"))
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Start struct {
			MSS    int   `json:"tcp_mss"`
			Buffer int64 `json:"sock_bufsize"`
			Test   struct {
				TOS int `json:"tos"`
			} `json:"test_start"`
		} `json:"start"`
		End struct {
			Sent struct {
				Bytes int64 `json:"bytes"`
			} `json:"sum_sent"`
		} `json:"end"`
	}
	if err := json.Unmarshal(b, &report); err != nil {
		t.Fatal(err)
	}
	if s := report.Start; s.MSS != mss || s.Buffer != buffer || s.Test.TOS != dscp<<2 {
		t.Errorf("report says %+v", s)
	}
	// 40 Mbit/s for a second are 5 MB, and what the buffers take at once.
	if s := report.End.Sent; s.Bytes > 6e6 || s.Bytes < 1e6 {
		t.Errorf("sent %+v", s)
	}
}

// TestTCPPing asks a port that the agent itself answers at.
func TestTCPPing(t *testing.T) {
	t.Parallel()
	plan := emptyPlan()
	own, here, port := plan.Own(), netip.MustParseAddr("127.0.0.1"), freePort(t)
	own.Actions = []Action{
		{At: -time.Second, Kind: "tcp_listen", Name: "x", Dst: here, DstPort: port},
		{Kind: "tcp_ping", Name: "x", Dst: here, DstPort: port, Count: 5, Interval: 50 * time.Millisecond},
	}
	plan.Hosts["here"] = own
	a := startAgent(t, plan)
	a.start()
	a.end("done", 0)
	b, err := os.ReadFile(filepath.Join(a.dir, "tcp-ping-x.json"))
	if err != nil {
		t.Fatal(err)
	}
	var found tcpPings
	if err := json.Unmarshal(b, &found); err != nil || found.Sent != 5 || len(found.RTTs) != 5 {
		t.Fatalf("%s, %v", b, err)
	}
	if quickest := slices.Min(found.RTTs); quickest <= 0 || quickest > 1e9 {
		t.Errorf("the quickest took %d ns", quickest)
	}
}

// TestTCPPingWithoutAnswer asks a port at which nobody listens.
func TestTCPPingWithoutAnswer(t *testing.T) {
	t.Parallel()
	plan := emptyPlan()
	own, here := plan.Own(), netip.MustParseAddr("127.0.0.1")
	own.Actions = []Action{{Kind: "tcp_ping", Name: "x", Dst: here, DstPort: freePort(t), Count: 2, Interval: 50 * time.Millisecond}}
	plan.Hosts["here"] = own
	a := startAgent(t, plan)
	a.start()
	a.end("failed", 1, "tcp_ping x: no answer: ", "connection refused")
}

// TestTCPListenPortInUse: nobody is armed with a port that is taken.
func TestTCPListenPortInUse(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	plan := emptyPlan()
	port := uint16(taken.Addr().(*net.TCPAddr).Port)
	plan.Hosts["here"] = HostPlan{Actions: []Action{{Kind: "tcp_listen", Name: "x", Dst: netip.MustParseAddr("127.0.0.1"), DstPort: port}}}
	a := startAgent(t, plan)
	a.end("failed", 1, "here: tcp_listen x: listen tcp 127.0.0.1:", "address already in use")
	if armed := a.events("armed"); len(armed) != 0 {
		t.Errorf("armed %+v", armed)
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	needIperf3(t)
	plan := loopbackPlan(t)
	f := &plan.Flows[0]
	f.Kind, f.CongestionControl, f.RateBps = "command", nil, nil
	server, client := fmt.Sprint(f.ServerPort), fmt.Sprint(f.ClientPort)
	own := plan.Own()
	own.Actions = []Action{
		{At: -5 * time.Second, Kind: "command_server", Flow: "flow1", Argv: []string{"iperf3", "-s", "-p", server}},
		{At: 0, Kind: "command_client", Flow: "flow1", Argv: []string{
			"iperf3", "-c", "127.0.0.1", "-B", "127.0.0.1", "-p", server, "--cport", client, "-t", "60", "-b", "10M"}},
	}
	plan.Hosts["here"] = own
	a := startAgent(t, plan)
	a.start()
	a.end("done", 0)
	if launched := a.events("flow_launched"); len(launched) != 2 {
		t.Errorf("launched %+v", launched)
	}
	for _, side := range []string{"client", "server"} {
		if b, err := os.ReadFile(filepath.Join(a.dir, "command-flow1-"+side+".txt")); err != nil || len(b) == 0 {
			t.Errorf("%s: %v: %q", side, err, b)
		}
	}
	spooled, err := os.ReadFile(filepath.Join(a.dir, "spool.lp"))
	if err != nil {
		t.Fatal(err)
	}
	for _, side := range []string{"side=sender", "side=receiver"} {
		if !strings.Contains(string(spooled), side) {
			t.Errorf("no samples with %s", side)
		}
	}
}

// TestCommandThatFails says so.
func TestCommandThatFails(t *testing.T) {
	t.Parallel()
	plan := loopbackPlan(t)
	f := &plan.Flows[0]
	f.Kind, f.CongestionControl, f.RateBps = "command", nil, nil
	own := plan.Own()
	own.Sample.TCP = nil
	own.Actions = []Action{{At: 0, Kind: "command_client", Flow: "flow1", Argv: []string{"ls", "/nowhere"}}}
	plan.Hosts["here"] = own
	a := startAgent(t, plan)
	a.start()
	a.end("failed", 1, "command_client flow1", "/nowhere")
}

func TestRunUDP(t *testing.T) {
	t.Parallel()
	needIperf3(t)
	plan := loopbackPlan(t)
	f := &plan.Flows[0]
	f.Kind, f.CongestionControl = "iperf3_udp", nil
	own := plan.Own()
	own.Sample.TCP = nil
	plan.Hosts["here"] = own
	a := startAgent(t, plan)
	a.start()
	a.end("done", 0)
	onTime := []string{"flow_released", "flow_first_data"}
	if held := a.one("flow_held"); !held.Held {
		if !strings.Contains(held.Reason, "udp_diag") {
			t.Errorf("not held: %+v", held)
		}
		onTime = onTime[1:]
	}
	for _, name := range onTime {
		if e := a.one(name); e.Error == nil || *e.Error < 0 || *e.Error > 200e6 {
			t.Errorf("%s %+v", name, e)
		}
	}
}

// TestLostGreeting has a server of iperf3 that never answers over UDP.
func TestLostGreeting(t *testing.T) {
	t.Parallel()
	needIperf3(t)
	plan := loopbackPlan(t)
	f := &plan.Flows[0]
	connect := -300 * time.Millisecond
	f.Kind, f.CongestionControl, f.Connect = "iperf3_udp", nil, &connect
	own := plan.Own()
	own.Sample.TCP, own.Actions = nil, own.Actions[1:]
	plan.Hosts["here"] = own
	server, err := net.Listen("tcp", netip.AddrPortFrom(f.Dst, f.ServerPort).String())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	silent, err := net.ListenPacket("udp", server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	greeted := make(chan time.Time, 1)
	go func() {
		if _, _, err := silent.ReadFrom(make([]byte, 100)); err == nil {
			greeted <- time.Now()
		}
	}()
	go func() {
		conn, err := server.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		const paramExchange, createStreams = 9, 10 // iperf_api.h
		io.ReadFull(conn, make([]byte, cookieBytes))
		conn.Write([]byte{paramExchange})
		length := make([]byte, 4)
		io.ReadFull(conn, length)
		io.ReadFull(conn, make([]byte, binary.BigEndian.Uint32(length)))
		conn.Write([]byte{createStreams})
		io.Copy(io.Discard, conn)
	}()
	a := startAgent(t, plan)
	t0 := a.start()
	a.end("failed", 1, "iperf3_client flow1: iperf3 begins with one datagram, which it sends once")
	held := a.one("flow_held")
	if !strings.Contains(held.Reason, "udp_diag") && (held.Held || !strings.Contains(held.Reason, "was lost on the path")) {
		t.Errorf("%+v", held)
	}
	if at := (<-greeted).UnixNano(); at < t0+int64(connect) || at > t0 {
		t.Errorf("the greeting left %v after the start, planned %v", time.Duration(at-t0), connect)
	}
}

// TestRunUDPFlow sends datagrams of the agent's own, beside samples of a TCP
// flow that go to the same spool.
func TestRunUDPFlow(t *testing.T) {
	t.Parallel()
	needIperf3(t)
	plan := loopbackPlan(t)
	rate := int64(8e6)
	plan.Flows = append(plan.Flows, Flow{
		Name: "datagrams", Kind: "udp", SrcHost: "here", DstHost: "here",
		Src: netip.MustParseAddr("127.0.0.1"), Dst: netip.MustParseAddr("127.0.0.1"),
		ServerPort: freePort(t), ClientPort: freePort(t), Streams: 1,
		Start: 200 * time.Millisecond, Duration: 800 * time.Millisecond, RateBps: &rate, PayloadBytes: 1000,
		RateSteps: []udp.Step{{At: 200 * time.Millisecond, RateBps: 0}, {At: 600 * time.Millisecond, RateBps: rate / 2}},
	})
	own := plan.Own()
	own.Actions = append(own.Actions,
		Action{At: -5 * time.Second, Kind: "udp_receive", Flow: "datagrams"},
		Action{At: 200 * time.Millisecond, Kind: "udp_send", Flow: "datagrams"})
	plan.Hosts["here"] = own
	a := startAgent(t, plan)
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
	plan := loopbackPlan(t)
	rate := int64(1e6)
	plan.Flows = []Flow{{
		Name: "flow1", Kind: "udp", SrcHost: "there", DstHost: "here",
		Src: netip.MustParseAddr("127.0.0.1"), Dst: netip.MustParseAddr("127.0.0.1"),
		ServerPort: uint16(taken.LocalAddr().(*net.UDPAddr).Port), ClientPort: 1, Streams: 1,
		Duration: time.Second, RateBps: &rate, PayloadBytes: 1000,
	}}
	plan.Hosts["here"] = HostPlan{Actions: []Action{{At: -5 * time.Second, Kind: "udp_receive", Flow: "flow1"}}}
	startAgent(t, plan).end("failed", 1, "here: udp_receive flow1", "binding to 127.0.0.1", "address already in use")
}

// httpPlan has fetches from this host to itself.
func httpPlan(t *testing.T) *Plan {
	plan := loopbackPlan(t)
	reno := "reno"
	plan.Flows = []Flow{{
		Name: "web", Kind: "http", SrcHost: "here", DstHost: "here",
		Src: netip.MustParseAddr("127.0.0.1"), Dst: netip.MustParseAddr("127.0.0.1"), ServerPort: freePort(t), Streams: 1,
		Start: 200 * time.Millisecond, Duration: 800 * time.Millisecond, CongestionControl: &reno,
		Fetching: Fetching{FetchBytes: 76_800, Fetches: 8, Think: 40 * time.Millisecond},
	}}
	own := plan.Own()
	own.Sample.TCP = []string{"web"}
	own.Actions = []Action{
		{At: -5 * time.Second, Kind: "http_server", Flow: "web"},
		{At: 200 * time.Millisecond, Kind: "http_client", Flow: "web"},
	}
	plan.Hosts["here"] = own
	return plan
}

func TestRunHTTP(t *testing.T) {
	for _, persistent := range []bool{false, true} {
		t.Run(fmt.Sprint("persistent ", persistent), func(t *testing.T) {
			t.Parallel()
			plan := httpPlan(t)
			plan.Flows[0].Persistent = persistent
			a := startAgent(t, plan)
			t0 := a.start()
			a.end("done", 0)
			if e := a.one("flow_first_data"); e.Flow != "web" || e.Planned != t0+200e6 || e.Error == nil || *e.Error < 0 || *e.Error > 200e6 {
				t.Errorf("first data %+v", e)
			}
			var client http.ClientResult
			var server http.ServerResult
			for name, v := range map[string]any{"http-web-receiver.json": &client, "http-web-sender.json": &server} {
				b, err := os.ReadFile(filepath.Join(a.dir, name))
				if err != nil || json.Unmarshal(b, v) != nil {
					t.Fatalf("%s: %v: %s", name, err, b)
				}
			}
			connections := 8
			if persistent {
				connections = 1
			}
			if want := (http.ClientResult{Asked: 8, Begun: 8, Done: 8, Connections: connections}); client != want {
				t.Errorf("client %+v, want %+v", client, want)
			}
			if want := (http.ServerResult{Served: 8, Connections: int64(connections)}); server != want {
				t.Errorf("server %+v, want %+v", server, want)
			}
			b, err := os.ReadFile(filepath.Join(a.dir, "spool.lp"))
			if err != nil {
				t.Fatal(err)
			}
			if done, err := spool.Scan(bytes.NewReader(b), 1); err != nil || done.Bytes != int64(len(b)) {
				t.Fatalf("spool: %+v, %v", done, err)
			}
			for _, side := range []string{"receiver", "sender"} {
				tags := ",flow=web,host=here,phase=measurement,point=point,run=run,side=" + side + " "
				var numbers []string
				for line := range strings.Lines(string(b)) {
					fields, fetch := strings.CutPrefix(line, "http_fetch"+tags+"fetch=")
					if !fetch {
						continue
					}
					number, _, _ := strings.Cut(fields, ",")
					numbers = append(numbers, number)
					if !strings.Contains(line, `congestion_control="reno"`) || !strings.Contains(line, "total_retrans=") {
						t.Errorf("row %s", line)
					}
				}
				if got := strings.Join(numbers, " "); got != "1i 2i 3i 4i 5i 6i 7i 8i" {
					t.Errorf("fetches at the %s: %s", side, got)
				}
				// A connection that persists is there while the client thinks: some 280 ms of 20 ms.
				if n := strings.Count(string(b), "\ntcp_info"+tags); persistent && n < 5 {
					t.Errorf("%d samples at the %s", n, side)
				}
			}
		})
	}
}

// TestRunHTTPWithoutServer: the fetches fail, and so does the phase.
func TestRunHTTPWithoutServer(t *testing.T) {
	t.Parallel()
	plan := httpPlan(t)
	own := plan.Own()
	own.Actions = own.Actions[1:]
	plan.Hosts["here"] = own
	a := startAgent(t, plan)
	a.start()
	a.end("failed", 1, "http_client web", "fetches failed, the first: ", "connection refused")
	b, err := os.ReadFile(filepath.Join(a.dir, "spool.lp"))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(b, []byte(`connection refused"`)); n == 0 || n > 8 {
		t.Errorf("%d rows of fetches that failed", n)
	}
}

// TestHTTPPortInUse: that is found before the host says that it is armed.
func TestHTTPPortInUse(t *testing.T) {
	t.Parallel()
	plan := httpPlan(t)
	taken, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", plan.Flows[0].ServerPort))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	startAgent(t, plan).end("failed", 1, "here: http_server web", "address already in use")
}

func TestLateStart(t *testing.T) {
	t.Parallel()
	needIperf3(t)
	a := startAgent(t, loopbackPlan(t))
	a.startIn(time.Second)
	a.end("failed", 1, "start arrived 20", "ms too late")
	if launched := a.events("flow_launched"); len(launched) != 1 || launched[0].Action != "iperf3_server" {
		t.Errorf("launched %+v", launched)
	}
}

func TestUnknownCongestionControl(t *testing.T) {
	for name, plan := range map[string]func(*testing.T) *Plan{"flow1": loopbackPlan, "web": httpPlan} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "flow1" {
				needIperf3(t)
			}
			plan := plan(t)
			unknown := "frugal"
			plan.Flows[0].CongestionControl = &unknown
			a := startAgent(t, plan)
			a.end("failed", 1, "here: "+name, `"frugal"`, "available are", "cubic")
			if armed := a.events("armed"); len(armed) != 0 {
				t.Errorf("armed %+v", armed)
			}
		})
	}
}

func TestBadPlan(t *testing.T) {
	t.Parallel()
	plan := loopbackPlan(t)
	plan.Duration = 0
	startAgent(t, plan).end("failed", 1, "plan.json: duration_ns: must be positive")
}

func TestNoServer(t *testing.T) {
	t.Parallel()
	needIperf3(t)
	plan := loopbackPlan(t)
	own := plan.Own()
	own.Actions = own.Actions[1:]
	plan.Hosts["here"] = own
	a := startAgent(t, plan)
	a.start()
	a.end("failed", 1, "iperf3_client flow1", "refused")
	if e := a.one("process_exit"); e.Action != "iperf3_client" || !strings.Contains(e.Stderr, "refused") {
		t.Errorf("process_exit %+v", e)
	}
	if held := a.one("flow_held"); held.Held {
		t.Errorf("held %+v", held)
	}
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
