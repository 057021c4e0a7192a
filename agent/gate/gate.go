package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"dumbbell/collectors/tcpinfo"
	"dumbbell/transports/atou/config"
	"dumbbell/transports/atou/proto"

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

const (
	// launchLead is how long before its planned start a client is launched, if
	// its host has known of the start for so long (clientLead). It holds lost
	// packets and their retransmissions during the handshake, and a host that is
	// slow because other flows run.
	launchLead = 4 * time.Second

	// tapLead is how long before the planned start the tap on the wire is
	// open: long enough for the kernel to begin to take times of packets, which
	// it leaves to a work queue. Until then a packet has the time of asking.
	tapLead = time.Second

	// cookieBytes and greetingBytes are what an iperf3 client sends on a data
	// connection before the test: COOKIE_SIZE in iperf3's source for TCP, an
	// integer for UDP.
	cookieBytes   = 37
	greetingBytes = 4

	firstDataTimeout = 2 * time.Second
)

// errGreeting ends an iperf3 client that would wait for its answer for 30 s.
var errGreeting = errors.New("iperf3 begins with one datagram, which it sends once: it, or the answer to it, was lost on the path " +
	"before the planned start. Start the flow when others leave it room, or use kind udp, which needs no answer")

var bytesSent = tcpinfo.FieldByName("bytes_sent")

// dataConnect is the first stop at which an iperf3 client makes a data
// connection: after the begin and the end of connect(2) for its control
// connection.
const dataConnect = 3

// launchHeld starts an iperf3 client under trace and returns with the client
// stopped, ready to send data, and no longer traced; or, at the deadline, with
// the client running and held false. The client makes no data connection before
// the given time. Whether it began to make them is returned too.
func launchHeld(p *process, diag *tcpinfo.Conn, flow *Flow, connect, deadline time.Time) (held, begun bool, err error) {
	p.cmd.SysProcAttr.Ptrace = true // by this thread, which start keeps
	if err := p.start(); err != nil {
		return false, false, err
	}

	var (
		last      = flow.Tuple(flow.Streams - 1)
		sample    tcpinfo.Sample
		connects  int
		connected bool
	)
	held, err = stepUntil(p.cmd.Process.Pid, deadline, func(systemCall int) (bool, error) {
		switch {
		case !connected && systemCall == unix.SYS_CONNECT:
			if connects++; connects == dataConnect {
				sleepUntil(p.ctx, connect)
			}
			err := diag.Get(flow.Protocol(), last, &sample)
			if errors.Is(err, tcpinfo.ErrNotFound) {
				return false, nil
			}
			connected = err == nil && sample.State == tcpinfo.Established
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

// connectAt is when a flow may make its connections.
func (r *run) connectAt(f *Flow) time.Time {
	at := f.Start - launchLead
	if f.Connect != nil {
		at = max(at, *f.Connect)
	}
	return r.t0.Add(at)
}

// runClient launches the client of a flow so that its data starts at the
// planned time, records what came of that, and waits until the client ends.
func (r *run) runClient(ctx context.Context, a Action) error {
	flow := r.plan.Flow(a.Flow)
	planned := r.t0.Add(a.At)
	diag, err := tcpinfo.Dial()
	if err != nil {
		return err
	}
	defer diag.Close()
	p, err := r.newProcess(ctx, a)
	if err != nil {
		return err
	}
	defer p.close()

	if unavailable := diag.Available(flow.Protocol()); unavailable != nil {
		// Only a UDP flow gets here: a host that cannot be asked about TCP is refused before arming.
		if sleepUntil(ctx, planned.Add(-tapLead)) != nil {
			return nil
		}
		awaitData := r.listenForData(ctx, diag, flow, planned)
		if sleepUntil(ctx, planned) != nil {
			return nil
		}
		if err := p.start(); err != nil {
			return err
		}
		r.journal.Event("flow_held", flow.Name, Attributes{"held": false, "reason": unavailable.Error()})
		awaitData()
		return p.wait()
	}

	if sleepUntil(ctx, planned.Add(-launchLead)) != nil {
		return nil
	}
	held, begun, err := launchHeld(p, diag, flow, r.connectAt(flow), planned)
	if p.cmd.Process == nil {
		return err
	}
	attributes := Attributes{"held": held, "lead_ns": time.Until(planned).Nanoseconds()}
	switch {
	case err != nil:
		attributes["reason"] = err.Error()
		r.fail(err)
	case !held && time.Now().Before(planned):
		attributes["reason"] = "the client ended before its data connection was up"
		r.journal.Event("flow_held", flow.Name, attributes)
		return p.wait()
	case !held && begun && flow.UDP():
		attributes["reason"] = errGreeting.Error()
		r.journal.Event("flow_held", flow.Name, attributes)
		return fmt.Errorf("%s: %w", a, errors.Join(errGreeting, p.kill()))
	case !held:
		attributes["reason"] = "the data connection was not up at the planned start"
	}
	var sample tcpinfo.Sample
	if held && diag.Get(flow.Protocol(), flow.Tuple(flow.Streams-1), &sample) == nil {
		if sent, ok := sample.Info.Value(bytesSent); ok {
			attributes["bytes_sent"] = sent
		}
	}
	r.journal.Event("flow_held", flow.Name, attributes)
	if sleepUntil(ctx, planned.Add(-tapLead)) != nil {
		return p.wait()
	}
	awaitData := r.listenForData(ctx, diag, flow, planned)
	if held && sleepUntil(ctx, planned) == nil {
		err := unix.Kill(p.cmd.Process.Pid, unix.SIGCONT)
		late := time.Since(planned)
		if err != nil {
			r.fail(fmt.Errorf("releasing %s: %w", flow.Name, err))
		}
		r.journal.Event("flow_released", flow.Name, Attributes{"planned_unix_ns": planned.UnixNano(), "error_ns": late.Nanoseconds()})
	}
	awaitData()
	return p.wait()
}

// listenForData begins to listen for the first data of a flow's last
// connection. What it returns waits for that data, and records when it left
// this host and, of TCP, which congestion control the connection has.
func (r *run) listenForData(ctx context.Context, diag *tcpinfo.Conn, flow *Flow, planned time.Time) (await func()) {
	last, before := flow.Tuple(flow.Streams-1), cookieBytes
	var with []payloadByte
	switch {
	case flow.Kind == "atou": // which may be opened while the tap listens
		before, with = config.HeaderBytes-1, []payloadByte{{proto.TypeAt, byte(proto.TypeData)}}
	case flow.UDP():
		before = greetingBytes
	}
	wire, err := openTap(flow.Protocol(), last, before, with...)
	return func() {
		var left time.Time
		if err == nil {
			defer wire.close()
			ctx, cancel := context.WithDeadline(ctx, planned.Add(firstDataTimeout))
			defer cancel()
			left, err = wire.next(ctx)
		}
		attributes := Attributes{"planned_unix_ns": planned.UnixNano()}
		switch {
		case errors.Is(err, context.Canceled):
			return // the run has been stopped
		case errors.Is(err, context.DeadlineExceeded):
			err = fmt.Errorf("no data within %v of the planned start", firstDataTimeout)
			fallthrough
		case err != nil:
			attributes["error_ns"], attributes["reason"] = nil, err.Error()
			r.journal.Event("flow_first_data", flow.Name, attributes)
			return
		}
		attributes["error_ns"] = left.Sub(planned).Nanoseconds()
		r.journal.EventAt(left, "flow_first_data", flow.Name, attributes)
		var sample tcpinfo.Sample
		if !flow.UDP() && diag.Get(tcpinfo.TCP, last, &sample) == nil {
			r.journal.Event("flow_congestion_control", flow.Name, Attributes{"name": sample.CongestionControl})
		}
	}
}
