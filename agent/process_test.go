package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"dumbbell/agent/kind"
	"dumbbell/agent/phase"
	"dumbbell/agent/plan"
	"dumbbell/agent/process"
	"dumbbell/collectors/spool"
)

// TestFlowsLiveWhileTheSpoolIsPacked: a spool that goes on in another file 200
// times, most of them compressed meanwhile, ends no process of a flow.
func TestFlowsLiveWhileTheSpoolIsPacked(t *testing.T) {
	t.Parallel()
	needIperf3(t)
	const rotations = 200
	p := loopbackPlan(t)
	p.Duration, p.SamplingInterval = 2*time.Minute, time.Millisecond
	own := p.Own()
	one := p.Flows[0]
	one.Duration = p.Duration
	p.Flows, own.Actions, own.Sample.TCP = nil, nil, nil
	for i := range 4 {
		f := one
		f.Name, f.ServerPort, f.ClientPort = fmt.Sprint("flow", i+1), freePort(t), freePort(t)
		rate := int64(1e6)
		f.RateBps = &rate
		p.Flows = append(p.Flows, f)
		own.Sample.TCP = append(own.Sample.TCP, f.Name)
		own.Actions = append(own.Actions,
			plan.Action{At: -5 * time.Second, Kind: "iperf3_server", Flow: f.Name}, plan.Action{At: 0, Kind: "iperf3_client", Flow: f.Name})
	}
	own.Sample.Trace, own.Sample.EBPF = false, false
	p.Hosts["here"] = own

	dir := t.TempDir()
	writePlan(t, dir, p)
	a := launchAgent(t, dir, "env", "DUMBBELL_TEST_SEGMENT_BYTES=1")
	a.start()
	a.await("the data of all flows", func() bool { return len(a.events("flow_first_data")) == len(p.Flows) })
	var segments []spool.Segment
	a.awaitFor(time.Minute, "a spool in many files", func() (done bool) {
		var err error
		if segments, err = spool.Segments(filepath.Join(dir, "spool.lp")); err != nil {
			t.Fatal(err)
		}
		return len(segments) > rotations || len(a.events("process_exit")) > 0
	})
	if exits := a.events("process_exit"); len(exits) > 0 {
		t.Errorf("after %d rotations processes have ended: %+v", len(segments)-1, exits)
	}
	packed := slices.DeleteFunc(segments, func(s spool.Segment) bool { return !strings.HasSuffix(s.Path, ".gz") })
	if len(packed) < rotations/2 {
		t.Errorf("only %d files are compressed", len(packed))
	}
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	a.end("aborted", 3, "signal")
	for _, side := range []string{"client", "server"} {
		if b, err := os.ReadFile(filepath.Join(dir, "iperf3-flow1-"+side+".json")); err != nil || len(b) == 0 {
			t.Errorf("%s: %v: %q", side, err, b)
		}
	}
}

// TestProcessOutlivesThreads: threads of the agent that end, as those of a
// library may, do not end its processes.
func TestProcessOutlivesThreads(t *testing.T) {
	t.Setenv("DUMBBELL_TEST_AS_AGENT", "1") // for the supervisor of the command
	r, err := phase.Open(t.TempDir(), version)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Journal.Close()
	r.Plan, r.T0 = stubbornPlan(t, "exec sleep 1000"), time.Now()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p, err := kind.NewProcess(ctx, r, r.Plan.Own().Actions[0])
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		gone := make(chan struct{})
		go func() { // while the test waits for it, on the same thread as the test if that is free
			runtime.LockOSThread() // never unlocked: the thread ends
			close(gone)
		}()
		<-gone
	}
	time.AfterFunc(200*time.Millisecond, cancel)
	if err := p.Wait(); err != nil { // it ended before
		t.Error(err)
	}
}

// stubborn is a command that leaves its session, ignores SIGTERM and has a
// child of its own. Their numbers are in a file, and one more line once it is
// complete.
const stubborn = `setsid sh -c 'trap "" TERM; sleep 1000 & echo $$ $! >pids; echo >>pids; wait' & `

// stubbornPlan has a flow of a second in a phase of a minute.
func stubbornPlan(t *testing.T, command string) *plan.Plan {
	p := plainPlan(t)
	p.Duration = time.Minute
	p.Own().Actions[0].Argv = []string{"sh", "-c", command}
	return p
}

func (a *agent) stubborn() (pids []int) {
	a.t.Helper()
	var b []byte
	a.await("the command's child", func() bool {
		b, _ = os.ReadFile(filepath.Join(a.dir, "pids"))
		return strings.Count(string(b), "\n") == 2
	})
	for _, word := range strings.Fields(string(b)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			a.t.Fatal(err)
		}
		a.t.Cleanup(func() { syscall.Kill(pid, syscall.SIGKILL) })
		if !lives(pid) {
			a.t.Fatalf("process %d has ended too early", pid)
		}
		pids = append(pids, pid)
	}
	return pids
}

func lives(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(b), ") Z ")
}

// TestNothingOutlivesACommand: when its time is over all processes have ended
// that came of it, while the phase goes on.
func TestNothingOutlivesACommand(t *testing.T) {
	for name, command := range map[string]string{"it waits": stubborn + "wait", "it ends before": stubborn} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := startAgent(t, stubbornPlan(t, command))
			t0 := a.start()
			pids := a.stubborn()
			over := time.Unix(0, t0).Add(time.Second)
			a.await("end of all processes", func() bool { return !slices.ContainsFunc(pids, lives) })
			if d := time.Since(over); d < 0 || d > process.KillDelay+5*time.Second { // tests share a machine
				t.Errorf("they ended %v after the command's time", d)
			}
			if s := a.status(); s.State != "running" {
				t.Errorf("status %+v", s)
			}
			if exits := a.events("process_exit"); len(exits) > 0 {
				t.Errorf("%+v", exits)
			}
		})
	}
}

// TestNothingOutlivesAnAgent that is killed or told to end.
func TestNothingOutlivesAnAgent(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			p := stubbornPlan(t, stubborn+"wait")
			p.Flows[0].Duration = p.Duration
			a := startAgent(t, p)
			a.start()
			pids := a.stubborn()
			if err := a.cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			<-a.exited
			for deadline := time.Now().Add(10 * time.Second); slices.ContainsFunc(pids, lives); time.Sleep(5 * time.Millisecond) {
				if signal == syscall.SIGTERM || time.Now().After(deadline) { // the agent has waited for them
					t.Fatalf("of %d some are left", pids)
				}
			}
		})
	}
}

// TestCommandThatIsKilled: its end is told as that of a process of the agent's own.
func TestCommandThatIsKilled(t *testing.T) {
	t.Parallel()
	p := stubbornPlan(t, "kill -KILL $$")
	p.Duration = 2 * time.Second
	a := startAgent(t, p)
	a.start()
	a.end("failed", 1, "command_client flow1: exit status 137: signal: killed")
}

// TestSupervisorIsNotPreferred: a command has the niceness that the agent was
// started with, and not its own.
func TestSupervisorIsNotPreferred(t *testing.T) {
	t.Parallel()
	p := stubbornPlan(t, "nice")
	p.Duration = 2 * time.Second
	a := startAgent(t, p)
	a.start()
	a.end("done", 0)
	if b, err := os.ReadFile(filepath.Join(a.dir, "command-flow1-client.txt")); err != nil || strings.TrimSpace(string(b)) != fmt.Sprint(process.Niceness()) {
		t.Errorf("niceness %q, %v", b, err)
	}
}
