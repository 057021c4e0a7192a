package kind

import (
	"context"
	"strings"
	"time"

	"dumbbell/agent/phase"
	"dumbbell/agent/plan"
	"dumbbell/collectors/tcpinfo"
)

// Flows of the user's commands: one at each end, both ended with their time.

func init() {
	addKind(Kind{Name: "command", Program: "command", Protocol: tcpinfo.TCP, Check: checkCommand})
	addTask(Task{Kind: "command_server", Role: Server, Serves: true, Command: command, Run: runCommandServer})
	addTask(Task{Kind: "command_client", Role: Client, Command: command, Run: runCommandClient})
}

func checkCommand(f *plan.Flow, require plan.Require) {
	requireOneStream(f, require, "a command")
	require(f.CongestionControl == nil, ".congestion_control", "a command has none")
}

func command(_ *plan.Plan, a plan.Action, _ time.Time) phase.Command {
	return phase.Command{Args: a.Argv, Output: strings.Replace(a.Kind, "_", "-"+a.Flow+"-", 1) + ".txt", Supervised: true}
}

func runCommandServer(ctx context.Context, r *phase.Run, a plan.Action, started func()) error {
	_, err := runUntil(ctx, r, a, r.Plan.Duration, started)
	return err
}

func runCommandClient(ctx context.Context, r *phase.Run, a plan.Action, started func()) error {
	f := r.Plan.Flow(a.Flow)
	_, err := runUntil(ctx, r, a, f.Start+f.Duration+Of(f).Drain, started)
	return err
}
