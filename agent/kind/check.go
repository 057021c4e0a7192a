package kind

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"dumbbell/agent/phase"
	"dumbbell/agent/plan"
	"dumbbell/collectors/tcpinfo"
)

// ReadPlan reads and checks a plan.
func ReadPlan(path string) (*plan.Plan, error) { return plan.Read(path, check) }

// ParsePlan decodes and checks a plan.
func ParsePlan(b []byte) (*plan.Plan, error) { return plan.Parse(b, check) }

// check says what is wrong with the flows and actions of a plan, by their kinds.
func check(p *plan.Plan, require plan.Require) {
	below := func(place string) plan.Require {
		return func(ok bool, key, format string, a ...any) { require(ok, place+key, format, a...) }
	}
	for i := range p.Flows {
		checkFlow(&p.Flows[i], below(plan.FlowKey(i)))
	}
	for i, a := range p.Own().Actions {
		require := below(p.ActionKey(i))
		task, known := tasks[a.Kind]
		switch {
		case !known:
			require(false, ".kind", "%q is none of %s", a.Kind, names(tasks))
		case task.Role != NoEnd:
			task.checkEnd(p, a, require)
		default:
			task.Check(a, require)
		}
	}
	for i, name := range p.Own().Sample.TCP {
		f := p.Flow(name)
		if f == nil || kinds[f.Kind] == nil {
			continue
		}
		require(Of(f).Sampling != Never, p.SampleKey(i), "%s is UDP", name)
		require(Of(f).Sampling != BySender || f.SrcHost == p.Host, p.SampleKey(i), "%s is of %s, and is sampled where it starts", name, f.Kind)
	}
}

func checkFlow(f *plan.Flow, require plan.Require) {
	own, known := kinds[f.Kind]
	require(known, ".kind", "%q is none of %s", f.Kind, names(kinds))
	for _, k := range kinds {
		if k.Foreign != nil && (!known || k.Program != own.Program) {
			k.Foreign(f, require)
		}
	}
	if known {
		require(own.Options || f.Options == plan.Options{}, "", "pacing_bps, mss_bytes, socket_buffer_bytes and dscp belong to iperf3 and tcp")
		require(own.KernelPorts || f.ClientPort > 0, ".client_port", "missing")
		own.Check(f, require)
	}
}

// checkEnd says what is wrong with an action that is one end of a flow.
func (t *Task) checkEnd(p *plan.Plan, a plan.Action, require plan.Require) {
	f := p.Flow(a.Flow)
	require(f != nil, ".flow", "there is no flow %q", a.Flow)
	require(a.Name == "" && !a.Dst.IsValid() && a.Count == 0 && a.Interval == 0, "", "name, dst, count and interval_ns belong to a ping")
	if f == nil || kinds[f.Kind] == nil {
		return
	}
	program, _, _ := strings.Cut(t.Kind, "_")
	require(Of(f).Program == program, ".kind", "%s does not make a flow of kind %s", t.Kind, f.Kind)
	require((program == "command") == (len(a.Argv) > 0 && a.Argv[0] != ""), ".argv", "a command has one, and nothing else")
	server, client := Of(f).sides(f)
	if t.Role == Client {
		require(client == p.Host, ".flow", "the client of %s is %s", f.Name, client)
		require(f.Start == a.At, ".at_ns", "is %d, but %s starts at %d", a.At, f.Name, f.Start)
	} else {
		require(server == p.Host, ".flow", "the server of %s is %s", f.Name, server)
	}
}

func requireCongestionControl(f *plan.Flow, require plan.Require) {
	require(f.CongestionControl != nil && *f.CongestionControl != "", ".congestion_control", "missing")
}

// requireDatagrams checks what all flows of datagrams at a rate have.
func requireDatagrams(f *plan.Flow, require plan.Require) {
	require(f.RateBps != nil, ".rate_bps", "missing, a UDP flow needs one")
	require(f.CongestionControl == nil, ".congestion_control", "a UDP flow has none")
}

// requireOneStream checks a flow of one stream and of some time.
func requireOneStream(f *plan.Flow, require plan.Require, of string) {
	require(f.Streams == 1, ".streams", "%s has one, not %d", of, f.Streams)
	require(f.Duration > 0, ".duration_ns", "must be positive, is %d", f.Duration)
	require(f.RateBps == nil, ".rate_bps", "%s has none", of)
}

// Prepare checks what the plan needs from this host, and prepares it, before the
// host says that it is armed.
func Prepare(ctx context.Context, r *phase.Run) error {
	for _, a := range r.Plan.Own().Actions {
		task := TaskOf(a)
		if task.Command != nil {
			program := task.Command(r.Plan, a, time.Time{}).Args[0]
			if _, err := exec.LookPath(program); err != nil {
				return fmt.Errorf("%s needs the program %s: %w", a.Kind, program, err)
			}
		}
		if task.Prepare != nil {
			if err := task.Prepare(ctx, r, a); err != nil {
				return err
			}
		}
	}
	if len(r.Plan.Own().Sample.TCP) > 0 {
		return checkDiag()
	}
	return nil
}

// checkDiag refuses a host whose kernel cannot be asked about connections.
func checkDiag() error {
	diag, err := tcpinfo.Dial()
	if err != nil {
		return err
	}
	defer diag.Close()
	return diag.Available(tcpinfo.TCP)
}

// checkCongestionControl refuses what setsockopt would refuse only at the
// start of the flow.
func checkCongestionControl(f *plan.Flow) error {
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
