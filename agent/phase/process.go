package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"dumbbell/traffic/guard"

	"golang.org/x/sys/unix"
)

const (
	// killDelay is how long a process may take to end after SIGTERM.
	killDelay = 2 * time.Second

	// ndtDrain is how long after its test a client of NDT may take to say what came of it.
	ndtDrain = 3 * time.Second
)

// commandLine is the command of an action, and the file its output goes to.
func commandLine(p *Plan, a Action, t0 time.Time) (args []string, output string) {
	switch a.Kind {
	case "iperf3_server":
		f := p.Flow(a.Flow)
		return []string{"iperf3", "-s", "-1", "-B", f.Dst.String(), "-p", strconv.Itoa(int(f.ServerPort)), "-J"},
			"iperf3-" + f.Name + "-server.json"
	case "iperf3_client":
		f := p.Flow(a.Flow)
		args := []string{"iperf3", "-c", f.Dst.String(), "-p", strconv.Itoa(int(f.ServerPort)),
			"-B", f.Src.String(), "--cport", strconv.Itoa(int(f.ClientPort)), "-P", strconv.Itoa(f.Streams), "-J",
			"-t", strconv.Itoa(int(f.Duration / time.Second))}
		if f.UDP() {
			args = append(args, "-u")
		} else {
			args = append(args, "-C", *f.CongestionControl)
		}
		if f.RateBps != nil { // iperf3 takes the rate of one stream
			args = append(args, "-b", strconv.FormatInt(*f.RateBps/int64(f.Streams), 10))
		}
		return append(args, f.arguments()...), "iperf3-" + f.Name + "-client.json"
	case "atou_serve", "atou_send":
		return atouCommand(p, a, t0)
	case "command_server", "command_client":
		return a.Argv, strings.Replace(a.Kind, "_", "-"+a.Flow+"-", 1) + ".txt"
	case "capture":
		return captureCommand(a.Name), "capture-" + a.Name + ".pcap"
	case "path":
		return []string{"tc", "-batch", "-"}, "path-" + a.Name + ".txt"
	case "ping":
		return []string{"ping", "-D", "-n", "-i", strconv.FormatFloat(a.Interval.Seconds(), 'f', -1, 64),
			"-c", strconv.Itoa(a.Count), a.Dst.String()}, "ping-" + a.Name + ".txt"
	}
	panic("unchecked plan: action " + a.Kind)
}

// A process is a command of the plan. It ends with its context: SIGTERM, then
// SIGKILL.
type process struct {
	run    *run
	ctx    context.Context
	action Action
	cmd    *exec.Cmd
	output *os.File
	stderr tail
	guard  *guard.Tool // of its port; nil if it serves nobody
}

func (r *run) newProcess(ctx context.Context, a Action) (*process, error) {
	args, output := commandLine(r.plan, a, r.t0)
	users := a.Argv != nil // a command of the user's
	if users {
		args = supervised(args)
	}
	f, err := os.Create(filepath.Join(r.dir, output))
	if err != nil {
		return nil, fmt.Errorf("preparing %s: %w", a.Kind, err)
	}
	p := &process{run: r, ctx: ctx, action: a, output: f}
	p.cmd = exec.CommandContext(ctx, args[0], args[1:]...)
	p.cmd.Dir = r.dir // what it writes comes home
	p.cmd.Env = append(os.Environ(), "LC_ALL=C")
	p.cmd.Stdout = f
	p.cmd.Stderr = &p.stderr
	p.cmd.WaitDelay = killDelay
	p.cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:   true,            // a terminal's Ctrl-C must reach the agent alone
		Pdeathsig: syscall.SIGKILL, // nothing may outlive an agent that is killed
	}
	if users { // the supervisor ends it, which may take as long
		p.cmd.WaitDelay += killDelay
		p.cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	}
	p.cmd.Cancel = func() error {
		pid := p.cmd.Process.Pid
		return errors.Join(unix.Kill(-pid, unix.SIGTERM), unix.Kill(-pid, unix.SIGCONT)) // a held process must run to end
	}
	return p, nil
}

// start starts the process at the niceness that the agent had at first; a
// change of the path, which is a matter of milliseconds, at its own. What
// follows, up to wait or kill, is in the same goroutine: Pdeathsig is sent when the
// thread ends that has started the process, so the thread is kept until then.
func (p *process) start() error {
	start := p.cmd.Start
	if port, serves := p.run.plan.port(p.action); serves {
		p.cmd.Env = append(p.cmd.Env, guard.Environment)
		start = func() (err error) {
			p.guard, err = port.Start(p.cmd.Start)
			return err
		}
	}
	runtime.LockOSThread()
	if err := start(); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("starting %s: %w", p.action.Kind, err)
	}
	if p.action.Kind != "path" {
		if err := unix.Setpriority(unix.PRIO_PROCESS, p.cmd.Process.Pid, inheritedNice); err != nil {
			p.run.fail(fmt.Errorf("setting the niceness of %s: %w", p.action.Kind, err))
		}
	}
	if p.action.Flow != "" {
		p.run.journal.Event("flow_launched", p.action.Flow, Attributes{"action": p.action.Kind})
	}
	return nil
}

func (p *process) close() { p.output.Close() }

// wait waits for a started process. That it failed is recorded as an event and
// returned as an error; that it was ended because the run is aborted is
// neither. "iperf3 -J" (3.12) exits with 0 even if it could not connect or write
// its report, so an error in its report counts as well, or a report without end.
func (p *process) wait() error {
	err := p.reap()
	late := errors.Is(context.Cause(p.ctx), context.DeadlineExceeded)
	if p.ctx.Err() != nil && !late {
		return nil
	}
	end, readErr := p.outputEnd()
	message := reportedError(end)
	switch {
	case late:
		err = fmt.Errorf("ended by the agent, %v after the end of the phase", gracePeriod)
	case err == nil && message != "":
		err = errors.New("its report has an error")
	case err == nil && readErr != nil:
		err = readErr
	case err == nil && strings.HasPrefix(p.action.Kind, "iperf3_") && !bytes.HasSuffix(bytes.TrimSpace(end), []byte("}")):
		err = errors.New("its report is not whole")
	case err == nil:
		return nil
	}
	message = strings.TrimSpace(string(p.stderr) + "\n" + message)
	code := p.cmd.ProcessState.ExitCode() // -1 if a signal ended it
	p.run.journal.Event("process_exit", p.action.Flow, Attributes{"action": p.action.Kind, "code": code, "stderr": message})
	return fmt.Errorf("%s: %w: %s", p.action, err, message)
}

// reap waits for a started process, and gives up what start has kept for it.
func (p *process) reap() error {
	err := p.cmd.Wait()
	runtime.UnlockOSThread()
	if p.guard != nil {
		p.run.strangers.let(p.action, p.guard.Close())
	}
	return err
}

// kill ends a started process, and what it has started, at once.
func (p *process) kill() error {
	err := unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL)
	p.reap() // its error says that it was killed
	return err
}

// reportError is the last member of a report of "iperf3 -J" that has one.
var reportError = regexp.MustCompile(`"error":\s*("(?:[^"\\]|\\.)*")\s*}\s*$`)

// reportedError is the error at the end of a report, or empty.
func reportedError(end []byte) (text string) {
	if found := reportError.FindSubmatch(end); found == nil || json.Unmarshal(found[1], &text) != nil {
		return ""
	}
	return text
}

// outputEnd is the end of the process's output, which may be too long to be
// read as a whole.
func (p *process) outputEnd() ([]byte, error) {
	end := make([]byte, 4096)
	size, err := p.output.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	n, err := p.output.ReadAt(end, max(0, size-int64(len(end))))
	if err != nil && err != io.EOF {
		return nil, err
	}
	return end[:n], nil
}

// A tail keeps the end of what is written to it.
type tail []byte

func (t *tail) Write(b []byte) (int, error) {
	const keep = 4096
	*t = append(*t, b...)
	if excess := len(*t) - keep; excess > 0 {
		*t = append((*t)[:0], (*t)[excess:]...)
	}
	return len(b), nil
}
