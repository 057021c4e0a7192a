// Package process has what every program that the agent starts is given: its
// priority, and a command of the user a supervisor.
package process

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// KillDelay is how long a process may take to end after SIGTERM.
const KillDelay = 2 * time.Second

// Supervised is the command line by which a command is run under supervision.
func Supervised(argv []string) []string {
	return append([]string{"/proc/self/exe", "supervise", strconv.Itoa(InheritedNice)}, argv...)
}

// Supervise runs a command at a niceness until all processes have ended
// that it has started, directly or not: what a user's command does with its
// children nobody knows. Those that have left their session or lost their
// parent become children of this process. When it is told to end, it ends them
// all, those that ignore SIGTERM by SIGKILL. It exits as the command does.
func Supervise(ctx context.Context, args []string) int {
	nice, err := strconv.Atoi(args[0])
	if err == nil {
		err = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	}
	var path string
	if err == nil {
		path, err = exec.LookPath(args[1])
	}
	var command int
	if err == nil {
		runtime.LockOSThread() // niceness and Pdeathsig are this thread's
		unix.Setpriority(unix.PRIO_PROCESS, 0, nice)
		command, err = syscall.ForkExec(path, args[1:], &syscall.ProcAttr{
			Env: os.Environ(), Files: []uintptr{0, 1, 2},
			Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}, // what ends this process by its group is not for the command
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 127
	}
	ended := make(chan unix.WaitStatus)
	go func() { ended <- reap(command) }()
	select {
	case status := <-ended:
		return exitCode(status)
	case <-ctx.Done():
	}
	signalDescendants(unix.SIGTERM)
	signalDescendants(unix.SIGCONT)
	for next := time.After(KillDelay); ; next = time.After(10 * time.Millisecond) { // for what was begun meanwhile
		select {
		case status := <-ended:
			return exitCode(status)
		case <-next:
			signalDescendants(unix.SIGKILL)
		}
	}
}

// reap waits until this process has no more children, and returns how the
// command has ended.
func reap(command int) (ended unix.WaitStatus) {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		if pid == command {
			ended = status
		}
		if err != nil && err != unix.EINTR { // ECHILD
			return ended
		}
	}
}

// exitCode is that of shells, which say what signal has ended a command.
func exitCode(status unix.WaitStatus) int {
	if status.Signaled() {
		fmt.Fprintln(os.Stderr, "signal:", status.Signal())
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// signalDescendants sends a signal to all processes below this one.
func signalDescendants(signal unix.Signal) {
	children := make(map[int][]int)
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // a valid pattern
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		var pid, parent int
		var state rune
		fmt.Sscan(string(b), &pid)
		fmt.Sscanf(string(b[bytes.LastIndexByte(b, ')')+1:]), " %c %d", &state, &parent)
		children[parent] = append(children[parent], pid)
	}
	for below := children[os.Getpid()]; len(below) > 0; below = below[1:] {
		unix.Kill(below[0], signal)
		below = append(below, children[below[0]]...)
	}
}
