package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"dumbbell/collectors/clock"
	"dumbbell/collectors/pace"
	"dumbbell/collectors/spool"
	"dumbbell/collectors/tcpinfo"
)

const (
	startPoll = 20 * time.Millisecond

	// gracePeriod is how long processes may run after the end of the phase, to
	// drain queues and to write their reports.
	gracePeriod = 10 * time.Second
)

// Only tests change these.
var (
	// armTimeout ends an agent whose controller has vanished.
	armTimeout = 5 * time.Minute

	// hangTimeout is how much longer than gracePeriod the agent itself may take.
	hangTimeout = 30 * time.Second
)

// A run is one execution of a plan in its run directory.
type run struct {
	dir     string
	lock    string // of the host; empty for none
	plan    *Plan
	clock   clock.Clock
	journal *Journal
	t0      time.Time     // with Go's monotonic reading
	begun   chan struct{} // closed when t0 is known

	servers   sync.WaitGroup
	strangers strangers // at this host's ports

	mu       sync.Mutex
	failures []error
}

// Run executes the plan in a run directory and returns the final state. The
// error says why that is not "done".
func Run(ctx context.Context, dir, lock, version string) (state string, err error) {
	r, err := openRun(dir, lock, version)
	if err != nil {
		return "failed", err
	}
	if err = os.Remove(archiveFile(dir)); err == nil || errors.Is(err, fs.ErrNotExist) { // of an earlier agent
		err = errors.Join(r.execute(ctx), r.observeAfter())
	}
	switch {
	case ctx.Err() != nil:
		state, err = "aborted", errors.Join(errors.New("ended by a signal"), err)
	case errors.Is(err, errNoStart):
		state = "aborted"
	case err != nil:
		state = "failed"
	default:
		state = "done"
	}
	return r.end(state, err)
}

func openRun(dir, lock, version string) (*run, error) {
	clock, err := clock.New()
	if err != nil {
		return nil, err
	}
	journal, err := OpenJournal(dir, version, clock)
	if err != nil {
		return nil, err
	}
	return &run{dir: dir, lock: lock, clock: clock, journal: journal, begun: make(chan struct{})}, nil
}

// Finish packs what an agent has left, after it has done what one has left
// undone that was killed, or hung.
func Finish(dir, version string) error {
	return errors.Join(finishRun(dir, version), Archive(dir))
}

// finishRun restores the path, makes the spool readable, and lets the status
// say how an agent ended, as systemd tells. It does nothing after an agent that
// has ended in order.
func finishRun(dir, version string) error {
	status := readStatus(dir)
	_, err := os.Stat(filepath.Join(dir, undoFile))
	if changed := err == nil; !changed && !status.alive() {
		return nil
	}
	r, err := openRun(dir, "", version)
	if err != nil {
		return err
	}
	err = errors.Join(r.restorePath(), r.observeAfter(), r.mendSpool(), removeToken(dir)) // whatever its plan was: this run does not go on
	if !status.alive() {
		return errors.Join(err, r.journal.Close(), syncAll(dir))
	}
	how := "was killed"
	if os.Getenv("EXIT_CODE") == "exited" {
		how = "ended with status " + os.Getenv("EXIT_STATUS")
	}
	r.journal.status.Iperf3, r.journal.status.Lead = status.Iperf3, status.Lead
	_, reason := r.end("failed", errors.Join(fmt.Errorf("the agent %s while it was %s", how, status.State), err))
	if readStatus(dir).alive() {
		err = reason
	}
	return err
}

// end leaves the run in its final state, once all that it has left is on disk.
// Whatever could not be written makes a run "failed" that would be "done".
func (r *run) end(state string, err error) (string, error) {
	check := func(failure error) {
		if err = errors.Join(err, failure); failure != nil && state == "done" {
			state = "failed"
		}
	}
	reason := func() string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	check(r.journal.Err())
	check(syncAll(r.dir))
	var attributes Attributes
	if err != nil {
		attributes = Attributes{"reason": reason()}
	}
	r.journal.Event(state, "", attributes)
	check(r.journal.Close())
	if failure := r.journal.State(state, reason()); failure != nil {
		check(failure)
		r.journal.State(state, reason()) // else that of an agent that was killed is left
	}
	return state, err
}

// syncAll waits until all files below a run directory are on disk, whoever has
// written them, with all entries of directories that lead to them from that of
// all runs.
func syncAll(dir string) error {
	directories := []string{filepath.Dir(filepath.Dir(dir)), filepath.Dir(dir)}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			directories = append(directories, path)
		case entry.Type().IsRegular():
			return spool.Sync(path)
		}
		return nil
	})
	for _, path := range slices.Backward(directories) {
		err = errors.Join(err, spool.Sync(path))
	}
	if err != nil {
		return fmt.Errorf("syncing what the run has left: %w", err)
	}
	return nil
}

func (r *run) execute(ctx context.Context) (err error) {
	if r.plan, err = ReadPlan(filepath.Join(r.dir, "plan.json")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.forgetToken()) }()
	if err := r.preflight(ctx); err != nil {
		return fmt.Errorf("%s: %w", r.plan.Host, err)
	}
	if err := r.holdHost(armTimeout + r.plan.Duration + gracePeriod); err != nil {
		return fmt.Errorf("%s: %w", r.plan.Host, err)
	}
	defer func() { err = errors.Join(err, r.holdHost(0)) }()
	rows, tornBytes, err := spool.Open(filepath.Join(r.dir, "spool.lp"), r.clock)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	r.strangers.count(r.plan)
	defer r.strangers.close()
	ends, err := openEnds(r.plan)
	if err != nil {
		return fmt.Errorf("%s: %w", r.plan.Host, err)
	}
	defer closeEnds(ends)
	samples, err := newSampler(r.plan, r.clock, r.journal, rows, ends)
	if err != nil {
		return err
	}
	defer samples.close()
	if n := len(ends); n > 0 { // each has a thread of its own, mostly in system calls
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + n)
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer r.servers.Wait()
	defer cancel(nil)
	r.startServers(ctx)
	if err := r.failed(); err != nil {
		return fmt.Errorf("%s: %w", r.plan.Host, err)
	}
	if err := r.observeBefore(); err != nil {
		return err
	}
	armed := Attributes{"nice": niceness()}
	if tornBytes > 0 {
		armed["torn_bytes"] = tornBytes
	}
	r.journal.Event("armed", "", armed)
	r.journal.status.Lead = int64(r.plan.lead())
	if err := r.journal.State("armed", ""); err != nil {
		return err
	}
	t0, err := r.awaitStart(ctx)
	if err != nil {
		return err
	}
	r.journal.Event("start_received", "", Attributes{"t0_unix_ns": t0})
	r.t0 = r.clock.At(t0)
	if margin := time.Until(r.t0); margin < r.plan.lead() {
		return fmt.Errorf("start arrived %d ms too late", (r.plan.lead() - margin).Milliseconds())
	}
	close(r.begun)
	over := time.AfterFunc(time.Until(r.t0.Add(r.plan.Duration+gracePeriod)), func() { cancel(context.DeadlineExceeded) })
	defer over.Stop()
	if err := r.journal.State("waiting", ""); err != nil {
		return err
	}
	for _, f := range r.plan.Flows {
		if f.SrcHost == r.plan.Host {
			r.journal.Event("flow_planned", f.Name, Attributes{"planned_unix_ns": t0 + int64(f.Start)})
		}
	}
	// Whatever hangs, the phase ends: systemd then ends what the agent has
	// started, and lets another finish (Finish).
	hung := time.AfterFunc(time.Until(r.t0.Add(r.plan.Duration+gracePeriod+hangTimeout)), func() {
		time.AfterFunc(killDelay, func() { os.Exit(1) }) // even if it cannot say so
		r.journal.State("failed", fmt.Sprintf("it hung, and was ended %v after the end of the phase", gracePeriod+hangTimeout))
		r.forgetToken()
		os.Exit(1)
	})
	defer hung.Stop()
	if err := r.prepareUndo(); err != nil {
		return err
	}
	return r.perform(ctx, samples, ends, rows)
}

// holdHost keeps the host for this run for a time from now, and a margin.
func (r *run) holdHost(d time.Duration) error {
	if r.lock == "" {
		return nil
	}
	return takeHost(r.lock, Hold{RunID: r.plan.Holder, UntilUnixNs: time.Now().Add(d + lockMargin).UnixNano()})
}

// mendSpool leaves the spool of a killed agent readable: complete up to its last batch.
func (r *run) mendSpool() error {
	path := filepath.Join(r.dir, "spool.lp")
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	rows, tornBytes, err := spool.Open(path, r.clock)
	if err != nil {
		return err
	}
	r.journal.Event("spool_mended", "", Attributes{"torn_bytes": tornBytes})
	return rows.Close()
}

// perform executes the actions and samples. One failure does not stop the
// rest: what was measured beside it may explain it.
func (r *run) perform(ctx context.Context, samples *sampler, ends map[string]*end, rows *spool.Writer) error {
	first := time.Duration(0)
	for _, a := range r.plan.Own().Actions {
		at := a.At
		if a.serves() {
			continue
		}
		if a.Kind == "iperf3_client" || a.Kind == "atou_send" {
			at -= launchLead
		}
		first = min(first, at)
	}
	var all sync.WaitGroup
	for _, a := range r.plan.Own().Actions {
		if a.serves() {
			continue // since it was armed
		}
		all.Go(func() {
			switch a.Kind {
			case "iperf3_client":
				r.fail(r.runClient(ctx, a))
			case "udp_send", "udp_receive", "http_server", "http_client":
				r.fail(r.runEnd(ctx, a, ends[a.String()], rows))
			case "path":
				r.fail(r.runPath(ctx, a, samples))
			case "tcp_ping":
				r.fail(r.runTCPPing(ctx, a))
			case "atou_send":
				r.fail(r.runAtou(ctx, a, rows))
			case "command_client":
				f := r.plan.Flow(a.Flow)
				end := f.Start + f.Duration
				if f.NDT() {
					end += ndtDrain
				}
				_, err := r.runUntil(ctx, a, end, func() {})
				r.fail(err)
			default:
				_, err := r.runPlain(ctx, a, func() {})
				r.fail(err)
			}
		})
	}
	all.Go(func() { r.fail(samples.run(ctx, r.t0)) })
	all.Go(func() { r.fail(r.watchClock(ctx)) })
	if sleepUntil(ctx, r.t0.Add(first)) == nil {
		r.fail(r.journal.State("running", ""))
	}
	all.Wait()
	r.servers.Wait()
	r.fail(samples.finish(ctx))
	sleepUntil(ctx, r.t0.Add(max(r.plan.Duration, r.plan.Own().RestoreAt)))
	r.fail(r.restorePath())
	r.strangers.report(r.journal)
	return r.failed()
}

// runUntil runs a process that may end on its own, and ends it when its time is
// over, which is no failure. It returns what runPlain does.
func (r *run) runUntil(ctx context.Context, a Action, end time.Duration, started func()) (said tail, err error) {
	ctx, cancel := r.until(ctx, end)
	defer cancel()
	return r.runPlain(ctx, a, started)
}

// runPlain runs a process until it ends, from its planned time, or from now on
// if it serves, and returns its last words on standard error.
func (r *run) runPlain(ctx context.Context, a Action, started func()) (said tail, err error) {
	p, err := r.newProcess(ctx, a)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if !a.serves() && sleepUntil(ctx, r.t0.Add(a.At)) != nil {
		return nil, nil
	}
	if err := p.start(); err != nil {
		return nil, err
	}
	started()
	err = p.wait()
	return p.stderr, err
}

// fail remembers a failure that makes the run's final state "failed".
func (r *run) fail(err error) {
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.failures = append(r.failures, err)
	}
}

// preflight checks what the plan needs from this host before the host says
// that it is armed.
func (r *run) preflight(ctx context.Context) error {
	var tcp bool
	for _, a := range r.plan.Own().Actions {
		program, _, _ := strings.Cut(a.Kind, "_")
		switch program {
		case "udp", "tcp": // the agent itself
			continue
		case "http": // likewise
			if err := checkCongestionControl(r.plan.Flow(a.Flow)); err != nil {
				return err
			}
			continue
		case "atou":
			if err := r.writeAtou(a); err != nil {
				return err
			}
		case "command":
			program = a.Argv[0]
		case "path":
			program = "tc"
		case "capture":
			program = "tcpdump"
		}
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s needs the program %s: %w", a.Kind, program, err)
		}
		if program == "iperf3" && r.journal.status.Iperf3 == "" {
			out, err := exec.CommandContext(ctx, program, "--version").Output()
			if err != nil {
				return fmt.Errorf("asking iperf3 for its version: %w", err)
			}
			r.journal.status.Iperf3, _, _ = strings.Cut(string(out), "\n")
		}
		if a.Kind != "iperf3_client" || r.plan.Flow(a.Flow).UDP() {
			continue
		}
		tcp = true
		if err := checkCongestionControl(r.plan.Flow(a.Flow)); err != nil {
			return err
		}
	}
	if tcp || len(r.plan.Own().Sample.TCP) > 0 {
		diag, err := tcpinfo.Dial()
		if err != nil {
			return err
		}
		defer diag.Close()
		return diag.Available(tcpinfo.TCP)
	}
	return nil
}

// checkCongestionControl refuses what setsockopt would refuse only at the
// start of the flow.
func checkCongestionControl(f *Flow) error {
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	if err != nil {
		return fmt.Errorf("looking for congestion controls: %w", err)
	}
	available := strings.Fields(string(b))
	if !slices.Contains(available, *f.CongestionControl) {
		return fmt.Errorf("%s: congestion control %q asked, available are %s", f.Name, *f.CongestionControl, strings.Join(available, ", "))
	}
	return nil
}

// errNoStart says that the controller never started an armed agent.
var errNoStart = errors.New("no start came")

// awaitStart waits for start.json and returns t0 in ns since 1970.
func (r *run) awaitStart(ctx context.Context) (int64, error) {
	path := filepath.Join(r.dir, "start.json")
	giveUp := time.Now().Add(armTimeout)
	for time.Now().Before(giveUp) {
		b, err := os.ReadFile(path)
		if err == nil {
			var start Start
			err = decodeStrict(b, &start)
			if err == nil {
				return start.T0UnixNs, nil
			}
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) { // not just half written
				return 0, fmt.Errorf("%s: %w", path, err)
			}
		} else if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission) { // not just about to be handed over
			return 0, fmt.Errorf("waiting for the start: %w", err)
		}
		if err := sleepUntil(ctx, time.Now().Add(startPoll)); err != nil {
			return 0, err
		}
		if err := r.failed(); err != nil { // of a server
			return 0, err
		}
	}
	return 0, fmt.Errorf("%w within %v of arming", errNoStart, armTimeout)
}

// sleepUntil sleeps to a moment of the monotonic clock, or until the context
// ends, whose error it then returns.
var sleepUntil = pace.SleepUntil
