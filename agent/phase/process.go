package phase

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
	"strings"
	"syscall"

	"dumbbell/agent/journal"
	"dumbbell/agent/plan"
	"dumbbell/agent/process"
	"dumbbell/traffic/guard"

	"golang.org/x/sys/unix"
)

// A Command is a program that an action runs.
type Command struct {
	Args       []string
	Output     string      // file in the run directory that gets its standard output
	Port       *guard.Port // where it waits for others, and who may come; nil if it does not
	Report     bool        // its output is a report in JSON, which has to be whole
	Supervised bool        // nobody knows what it does with its children: it is a command of the user's
	Urgent     bool        // it has the agent's own priority
}

// A Process runs a command of the plan. It ends with its context: SIGTERM, then
// SIGKILL.
type Process struct {
	Cmd *exec.Cmd

	run     *Run
	ctx     context.Context
	action  plan.Action
	command Command
	output  *os.File
	stderr  tail
	guard   *guard.Tool // of its port; nil if it serves nobody
}

// NewProcess prepares the process of an action.
func (r *Run) NewProcess(ctx context.Context, a plan.Action, c Command) (*Process, error) {
	args := c.Args
	if c.Supervised {
		args = process.Supervised(args)
	}
	f, err := os.Create(filepath.Join(r.Dir, c.Output))
	if err != nil {
		return nil, fmt.Errorf("preparing %s: %w", a.Kind, err)
	}
	p := &Process{run: r, ctx: ctx, action: a, command: c, output: f}
	p.Cmd = exec.CommandContext(ctx, args[0], args[1:]...)
	p.Cmd.Dir = r.Dir // what it writes comes home
	p.Cmd.Env = append(os.Environ(), "LC_ALL=C")
	p.Cmd.Stdout = f
	p.Cmd.Stderr = &p.stderr
	p.Cmd.WaitDelay = process.KillDelay
	p.Cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:   true,            // a terminal's Ctrl-C must reach the agent alone
		Pdeathsig: syscall.SIGKILL, // nothing may outlive an agent that is killed
	}
	if c.Supervised { // the supervisor ends it, which may take as long
		p.Cmd.WaitDelay += process.KillDelay
		p.Cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	}
	p.Cmd.Cancel = func() error {
		pid := p.Cmd.Process.Pid
		return errors.Join(unix.Kill(-pid, unix.SIGTERM), unix.Kill(-pid, unix.SIGCONT)) // a held process must run to end
	}
	return p, nil
}

// Start starts the process at the niceness that the agent had at first; what is
// urgent, as a change of the path is, at its own. What
// follows, up to Wait or Kill, is in the same goroutine: Pdeathsig is sent when the
// thread ends that has started the process, so the thread is kept until then.
func (p *Process) Start() error {
	start := p.Cmd.Start
	if p.command.Port != nil {
		p.Cmd.Env = append(p.Cmd.Env, guard.Environment)
		start = func() (err error) {
			p.guard, err = p.command.Port.Start(p.Cmd.Start)
			return err
		}
	}
	runtime.LockOSThread()
	if err := start(); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("starting %s: %w", p.action.Kind, err)
	}
	if !p.command.Urgent {
		if err := unix.Setpriority(unix.PRIO_PROCESS, p.Cmd.Process.Pid, process.InheritedNice); err != nil {
			p.run.Fail(fmt.Errorf("setting the niceness of %s: %w", p.action.Kind, err))
		}
	}
	if p.action.Flow != "" {
		p.run.Journal.Event("flow_launched", p.action.Flow, journal.Attributes{"action": p.action.Kind})
	}
	return nil
}

// Close gives up a process that has ended, or was never started.
func (p *Process) Close() { p.output.Close() }

// Wait waits for a started process. That it failed is recorded as an event and
// returned as an error; that it was ended because the run is aborted is
// neither. "iperf3 -J" (3.12) exits with 0 even if it could not connect or write
// its report, so an error in its report counts as well, or a report without end.
func (p *Process) Wait() error {
	err := p.reap()
	late := errors.Is(context.Cause(p.ctx), context.DeadlineExceeded)
	if p.ctx.Err() != nil && !late {
		return nil
	}
	end, readErr := p.outputEnd()
	message := reportedError(end)
	switch {
	case late:
		err = fmt.Errorf("ended by the agent, %v after the end of the phase", GracePeriod)
	case err == nil && message != "":
		err = errors.New("its report has an error")
	case err == nil && readErr != nil:
		err = readErr
	case err == nil && p.command.Report && !bytes.HasSuffix(bytes.TrimSpace(end), []byte("}")):
		err = errors.New("its report is not whole")
	case err == nil:
		return nil
	}
	message = strings.TrimSpace(string(p.stderr) + "\n" + message)
	code := p.Cmd.ProcessState.ExitCode() // -1 if a signal ended it
	p.run.Journal.Event("process_exit", p.action.Flow, journal.Attributes{"action": p.action.Kind, "code": code, "stderr": message})
	return fmt.Errorf("%s: %w: %s", p.action, err, message)
}

// Said is the end of what it has said on standard error, once it has ended.
func (p *Process) Said() []byte { return p.stderr }

// reap waits for a started process, and gives up what Start has kept for it.
func (p *Process) reap() error {
	err := p.Cmd.Wait()
	runtime.UnlockOSThread()
	if p.guard != nil {
		p.run.Strangers.let(p.action, p.guard.Close())
	}
	return err
}

// Kill ends a started process, and what it has started, at once.
func (p *Process) Kill() error {
	err := unix.Kill(-p.Cmd.Process.Pid, unix.SIGKILL)
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
func (p *Process) outputEnd() ([]byte, error) {
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
