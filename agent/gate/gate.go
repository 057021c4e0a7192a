// Package gate makes a flow start when it was planned, and hears when it did.
package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"dumbbell/collectors/pace"
	"dumbbell/collectors/tcpinfo"

	"golang.org/x/sys/unix"
)

// The gate makes a flow start when it was planned. An iperf3 client needs
// about five round trips before it sends data; started at the planned time it
// would be that much late, and by a different amount on each path. So it is
// launched early and run from one system call to the next until its last data
// connection is up, it has told the server which connection that is (iperf3
// writes a cookie of 37 bytes over TCP, a greeting of 4 bytes over UDP), has
// made its buffers, and begins to wait for the server's answer, which starts
// the test. There it is stopped. The answer then waits in a socket; continuing
// the client at the planned time releases its first data at once.
//
// A plan may say when the data connections are made at the earliest
// (connect_ns), so that they meet the path of the start: until then the client
// waits where it begins to make the first.
//
// Stepping finds this point at any round-trip time, however small, and uses no
// CPU while the client waits for the network. INET_DIAG alone, polled, loses
// the race where the round trip is shorter than the poll interval.

// dataConnect is the first stop at which an iperf3 client makes a data
// connection: after the begin and the end of connect(2) for its control
// connection.
const dataConnect = 3

// Hold runs an iperf3 client that has just been started under trace, by this
// thread, and returns with the client stopped, ready to send data, and no longer
// traced; or, at the deadline, with the client running and held false. Its last
// data connection is given. It makes no data connection before the given time.
// Whether it began to make them is returned too.
func Hold(ctx context.Context, pid int, diag *tcpinfo.Conn, protocol tcpinfo.Protocol, last tcpinfo.Tuple, connect, deadline time.Time) (
	held, begun bool, err error) {
	var (
		found     tcpinfo.Sample
		connects  int
		connected bool
	)
	held, err = stepUntil(pid, deadline, func(systemCall int) (bool, error) {
		switch {
		case !connected && systemCall == unix.SYS_CONNECT:
			if connects++; connects == dataConnect {
				pace.SleepUntil(ctx, connect)
			}
			err := diag.Get(protocol, last, &found)
			if errors.Is(err, tcpinfo.ErrNotFound) {
				return false, nil
			}
			connected = err == nil && found.State == tcpinfo.Established
			return false, err
		}
		return connected && slices.Contains(waitCalls, systemCall), nil
	})
	if err != nil {
		err = fmt.Errorf("stepping iperf3 to its data connection: %w", err)
	}
	return held, connects >= dataConnect, err
}

// stepUntil runs a process that has just been started under trace from one
// stop at the begin or end of a system call to the next until stopHere says to
// hold it: then the process is stopped as by SIGSTOP. At the deadline, or if
// the process ends, stepUntil returns false. In all cases the process is traced
// no more.
func stepUntil(pid int, deadline time.Time, stopHere func(systemCall int) (bool, error)) (held bool, err error) {
	interrupted := make(chan struct{})
	interrupt := time.AfterFunc(time.Until(deadline), func() {
		unix.Kill(pid, unix.SIGSTOP) // stops the process for its tracer, below, and has no effect beyond
		close(interrupted)
	})
	defer func() {
		if !interrupt.Stop() {
			<-interrupted
		}
	}()
	for first, signal := true, 0; ; first = false {
		if !first {
			if err := unix.PtraceSyscall(pid, signal); err != nil && err != unix.ESRCH {
				return false, errors.Join(fmt.Errorf("continuing it: %w", err), unix.PtraceDetach(pid))
			}
		}
		status, exited, err := waitStop(pid)
		if err != nil || exited {
			return false, err
		}
		if first {
			if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_EXITKILL); err != nil {
				return false, errors.Join(fmt.Errorf("setting trace options: %w", err), unix.PtraceDetach(pid))
			}
			continue
		}
		signal = 0
		switch stop := status.StopSignal(); {
		case stop == unix.SIGTRAP|0x80: // PTRACE_O_TRACESYSGOOD: a system call begins or ends
			systemCall, err := systemCallNumber(pid)
			if err != nil {
				err = fmt.Errorf("reading its system call: %w", err)
			} else {
				held, err = stopHere(systemCall)
			}
			if err != nil {
				return false, errors.Join(err, unix.PtraceDetach(pid))
			}
			if held {
				// The signal waits until the process leaves the system call, where it is traced no more.
				return true, errors.Join(unix.Kill(pid, unix.SIGSTOP), unix.PtraceDetach(pid))
			}
		case stop == unix.SIGSTOP && !time.Now().Before(deadline):
			return false, unix.PtraceDetach(pid)
		case stop != unix.SIGTRAP:
			signal = int(stop)
		}
	}
}

// waitStop waits until a traced process stops or ends. An exit status is left
// for exec.Cmd.Wait.
func waitStop(pid int) (status unix.WaitStatus, exited bool, err error) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, false, fmt.Errorf("waiting for it to stop: %w", err)
		}
		const exitedCode, dumpedCode = 1, 3 // CLD_EXITED, CLD_KILLED, CLD_DUMPED
		if info.Code >= exitedCode && info.Code <= dumpedCode {
			return 0, true, nil
		}
		if _, err := unix.Wait4(pid, &status, 0, nil); err != nil && err != unix.EINTR {
			return 0, false, fmt.Errorf("waiting for it to stop: %w", err)
		}
		if status.Stopped() {
			return status, false, nil
		}
		return status, true, errors.New("it ended while it was stopped")
	}
}
