package kind

import (
	"strconv"
	"time"

	"dumbbell/agent/phase"
	"dumbbell/agent/plan"
)

func init() {
	addTask(Task{Kind: "ping", Check: checkPing, Command: ping})
}

// checkPing checks what measures round-trip times, and what answers it.
func checkPing(a plan.Action, require plan.Require) {
	require((a.Kind != "ping") == (a.DstPort > 0), ".dst_port", "a tcp_ping and a tcp_listen have one, and nothing else")
	require(a.Flow == "" && len(a.Argv) == 0, "", "a %s has neither flow nor argv", a.Kind)
	require(plan.Name.MatchString(a.Name), ".name", "%q is not a name of letters, digits, _ . and -", a.Name)
	require(a.Dst.IsValid(), ".dst", "missing")
	require(a.Kind == "tcp_listen" || !a.Src.IsValid(), ".src", "only a tcp_listen has one")
	require(a.Kind == "tcp_listen" || a.Count > 0, ".count", "must be positive, is %d", a.Count)
	require(a.Kind == "tcp_listen" || a.Interval > 0, ".interval_ns", "must be positive, is %d", a.Interval)
}

func ping(_ *plan.Plan, a plan.Action, _ time.Time) phase.Command {
	return phase.Command{
		Args: []string{"ping", "-D", "-n", "-i", strconv.FormatFloat(a.Interval.Seconds(), 'f', -1, 64),
			"-c", strconv.Itoa(a.Count), a.Dst.String()},
		Output: "ping-" + a.Name + ".txt",
	}
}
