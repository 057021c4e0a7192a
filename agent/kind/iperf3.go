package kind

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"dumbbell/agent/gate"
	"dumbbell/agent/journal"
	"dumbbell/agent/phase"
	"dumbbell/agent/plan"
	"dumbbell/collectors/pace"
	"dumbbell/collectors/tcpinfo"

	"golang.org/x/sys/unix"
)

// Programs that send by iperf3: one process at each end, of which the client is
// held until its planned start.

func init() {
	tcp := Kind{Name: "iperf3_tcp", Program: "iperf3", Protocol: tcpinfo.TCP, Options: true, Check: checkIperf3}
	udp := tcp
	udp.Name, udp.Protocol, udp.Sampling = "iperf3_udp", tcpinfo.UDP, Never
	addKind(tcp)
	addKind(udp)
	addTask(Task{Kind: "iperf3_server", Role: Server, Serves: true, Prepare: askIperf3, Command: iperf3Server, Run: runIperf3Server})
	addTask(Task{Kind: "iperf3_client", Role: Client, Lead: clientLead, Ahead: LaunchLead, Prepare: prepareIperf3Client, Command: iperf3Client, Run: runIperf3Client})
}

const (
	// CookieBytes and greetingBytes are what an iperf3 client sends on a data
	// connection before the test: COOKIE_SIZE in iperf3's source for TCP, an
	// integer for UDP.
	CookieBytes   = 37
	greetingBytes = 4

	listenerPoll = 2 * time.Millisecond
)

// errGreeting ends an iperf3 client that would wait for its answer for 30 s.
var errGreeting = errors.New("iperf3 begins with one datagram, which it sends once: it, or the answer to it, was lost on the path " +
	"before the planned start. Start the flow when others leave it room, or use kind udp, which needs no answer")

var bytesSent = tcpinfo.FieldByName("bytes_sent")

func checkIperf3(f *plan.Flow, require plan.Require) {
	if f.Kind == "iperf3_tcp" {
		requireCongestionControl(f, require)
	} else {
		requireDatagrams(f, require)
	}
	require(f.Duration > 0 && f.Duration%time.Second == 0, ".duration_ns",
		"iperf3 runs for a whole number of seconds, not %v", f.Duration)
	require(f.RateBps == nil || *f.RateBps > 0, ".rate_bps", "must be positive or null")
}

// askIperf3 asks iperf3 for its version, once.
func askIperf3(ctx context.Context, r *phase.Run, _ plan.Action) error {
	if r.Journal.Status.Iperf3 != "" {
		return nil
	}
	out, err := exec.CommandContext(ctx, "iperf3", "--version").Output()
	if err != nil {
		return fmt.Errorf("asking iperf3 for its version: %w", err)
	}
	r.Journal.Status.Iperf3, _, _ = strings.Cut(string(out), "\n")
	return nil
}

func prepareIperf3Client(ctx context.Context, r *phase.Run, a plan.Action) error {
	err := askIperf3(ctx, r, a)
	if f := r.Plan.Flow(a.Flow); err == nil && Of(f).Protocol == tcpinfo.TCP {
		if err = checkCongestionControl(f); err == nil {
			err = checkDiag()
		}
	}
	return err
}

func iperf3Server(p *plan.Plan, a plan.Action, _ time.Time) phase.Command {
	f := p.Flow(a.Flow)
	return phase.Command{
		Args:   []string{"iperf3", "-s", "-1", "-B", f.Dst.String(), "-p", strconv.Itoa(int(f.ServerPort)), "-J"},
		Output: "iperf3-" + f.Name + "-server.json", Report: true,
	}
}

// runIperf3Server runs the server of a flow until it ends. It says that it has
// started when the server listens: a client that comes before is refused.
func runIperf3Server(ctx context.Context, r *phase.Run, a plan.Action, started func()) error {
	runs, ended := context.WithCancel(ctx)
	defer ended()
	_, err := runPlain(ctx, r, a, func() {
		go func() {
			if awaitListener(runs, r.Plan.Flow(a.Flow).ServerPort) {
				started()
			}
		}()
	})
	return err
}

// awaitListener waits until a TCP port of this host listens, and tells whether it does.
func awaitListener(ctx context.Context, port uint16) bool {
	local, listens := fmt.Sprintf(":%04X", port), fmt.Sprintf("%02X", unix.BPF_TCP_LISTEN)
	for {
		for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			sockets, _ := os.ReadFile(name) // a host without IPv6 has no second one
			for line := range strings.Lines(string(sockets)) {
				fields := strings.Fields(line)
				if strings.HasSuffix(fields[1], local) && fields[3] == listens {
					return true
				}
			}
		}
		if pace.SleepUntil(ctx, time.Now().Add(listenerPoll)) != nil {
			return false
		}
	}
}

func iperf3Client(p *plan.Plan, a plan.Action, _ time.Time) phase.Command {
	f := p.Flow(a.Flow)
	args := []string{"iperf3", "-c", f.Dst.String(), "-p", strconv.Itoa(int(f.ServerPort)),
		"-B", f.Src.String(), "--cport", strconv.Itoa(int(f.ClientPort)), "-P", strconv.Itoa(f.Streams), "-J",
		"-t", strconv.Itoa(int(f.Duration / time.Second))}
	if Of(f).Protocol == tcpinfo.UDP {
		args = append(args, "-u")
	} else {
		args = append(args, "-C", *f.CongestionControl)
	}
	if f.RateBps != nil { // iperf3 takes the rate of one stream
		args = append(args, "-b", strconv.FormatInt(*f.RateBps/int64(f.Streams), 10))
	}
	return phase.Command{Args: append(args, arguments(f.Options)...), Output: "iperf3-" + f.Name + "-client.json", Report: true}
}

// arguments are iperf3's, of the client, which tells the server what it needs.
func arguments(o plan.Options) (args []string) {
	if o.PacingBps != nil {
		args = append(args, "--fq-rate", strconv.FormatInt(*o.PacingBps, 10))
	}
	if o.MSS != nil {
		args = append(args, "-M", strconv.Itoa(*o.MSS))
	}
	if o.SocketBuffer != nil {
		args = append(args, "-w", strconv.FormatInt(*o.SocketBuffer, 10))
	}
	if o.DSCP != nil {
		args = append(args, "--dscp", strconv.Itoa(*o.DSCP))
	}
	return args
}

// runIperf3Client launches the client of a flow so that its data starts at the
// planned time, records what came of that, and waits until the client ends.
func runIperf3Client(ctx context.Context, r *phase.Run, a plan.Action, _ func()) error {
	flow := r.Plan.Flow(a.Flow)
	protocol, last := Of(flow).Protocol, flow.Tuple(flow.Streams-1)
	planned := r.T0.Add(a.At)
	diag, err := tcpinfo.Dial()
	if err != nil {
		return err
	}
	defer diag.Close()
	p, err := NewProcess(ctx, r, a)
	if err != nil {
		return err
	}
	defer p.Close()

	if unavailable := diag.Available(protocol); unavailable != nil {
		// Only a UDP flow gets here: a host that cannot be asked about TCP is refused before arming.
		if pace.SleepUntil(ctx, planned.Add(-tapLead)) != nil {
			return nil
		}
		awaitData := listenForData(ctx, r, diag, flow, planned, iperf3Greeting(protocol))
		if pace.SleepUntil(ctx, planned) != nil {
			return nil
		}
		if err := p.Start(); err != nil {
			return err
		}
		r.Journal.Event("flow_held", flow.Name, journal.Attributes{"held": false, "reason": unavailable.Error()})
		awaitData()
		return p.Wait()
	}

	if pace.SleepUntil(ctx, planned.Add(-LaunchLead)) != nil {
		return nil
	}
	p.Cmd.SysProcAttr.Ptrace = true // by this thread, which Start keeps
	if err := p.Start(); err != nil {
		return err
	}
	held, begun, err := gate.Hold(ctx, p.Cmd.Process.Pid, diag, protocol, last, connectAt(r.T0, flow), planned)
	attributes := journal.Attributes{"held": held, "lead_ns": time.Until(planned).Nanoseconds()}
	switch {
	case err != nil:
		attributes["reason"] = err.Error()
		r.Fail(err)
	case !held && time.Now().Before(planned):
		attributes["reason"] = "the client ended before its data connection was up"
		r.Journal.Event("flow_held", flow.Name, attributes)
		return p.Wait()
	case !held && begun && protocol == tcpinfo.UDP:
		attributes["reason"] = errGreeting.Error()
		r.Journal.Event("flow_held", flow.Name, attributes)
		return fmt.Errorf("%s: %w", a, errors.Join(errGreeting, p.Kill()))
	case !held:
		attributes["reason"] = "the data connection was not up at the planned start"
	}
	var found tcpinfo.Sample
	if held && diag.Get(protocol, last, &found) == nil {
		if sent, ok := found.Info.Value(bytesSent); ok {
			attributes["bytes_sent"] = sent
		}
	}
	r.Journal.Event("flow_held", flow.Name, attributes)
	if pace.SleepUntil(ctx, planned.Add(-tapLead)) != nil {
		return p.Wait()
	}
	awaitData := listenForData(ctx, r, diag, flow, planned, iperf3Greeting(protocol))
	if held && pace.SleepUntil(ctx, planned) == nil {
		err := unix.Kill(p.Cmd.Process.Pid, unix.SIGCONT)
		late := time.Since(planned)
		if err != nil {
			r.Fail(fmt.Errorf("releasing %s: %w", flow.Name, err))
		}
		r.Journal.Event("flow_released", flow.Name, journal.Attributes{"planned_unix_ns": planned.UnixNano(), "error_ns": late.Nanoseconds()})
	}
	awaitData()
	return p.Wait()
}

// iperf3Greeting is what a client has sent before the test on each data connection.
func iperf3Greeting(protocol tcpinfo.Protocol) greeting {
	if protocol == tcpinfo.UDP {
		return greeting{bytes: greetingBytes}
	}
	return greeting{bytes: CookieBytes}
}
