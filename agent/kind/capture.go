package kind

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"dumbbell/agent/journal"
	"dumbbell/agent/phase"
	"dumbbell/agent/plan"
)

const (
	// SnapLength is what a capture keeps of a packet: the headers of Ethernet,
	// IPv6 and TCP with all options (14 + 40 + 60), and of tunnels a little.
	SnapLength = 128

	// captureBufferKiB holds 40 000 packets of that length while tcpdump waits
	// for a core or the disk.
	captureBufferKiB = 8192
)

func init() {
	addTask(Task{Kind: "capture", Serves: true, Check: checkCapture, Command: capture, Run: runCapture})
}

func checkCapture(a plan.Action, require plan.Require) {
	require(a.Flow == "" && len(a.Argv) == 0 && !a.Dst.IsValid(), "", "a capture has the name of an interface alone")
	require(plan.Name.MatchString(a.Name), ".name", "%q is no name of an interface: letters, digits, _ . and -", a.Name)
}

// capture is tcpdump's command, of an interface, to its standard output.
func capture(_ *plan.Plan, a plan.Action, _ time.Time) phase.Command {
	args := []string{"tcpdump", "-i", a.Name, "-p", "-n", "-s", strconv.Itoa(SnapLength), "-B", strconv.Itoa(captureBufferKiB),
		"--time-stamp-precision", "nano", "-w", "-"}
	return phase.Command{Args: args, Output: "capture-" + a.Name + ".pcap"}
}

// captureCounts are tcpdump's last words.
var captureCounts = regexp.MustCompile(`(?m)^(\d+) packets? captured$(?s:.*)^(\d+) packets? dropped by kernel$`)

// runCapture captures until the phase ends, and records how many packets there
// are and how many the kernel had no room for.
func runCapture(ctx context.Context, r *phase.Run, a plan.Action, started func()) error {
	said, err := runUntil(ctx, r, a, r.Plan.Duration, started)
	if err != nil || said == nil { // it failed, or the run was aborted before it began
		return err
	}
	counts := captureCounts.FindSubmatch(said)
	if counts == nil {
		return fmt.Errorf("%s: tcpdump did not tell how many packets it has: %s", a, said)
	}
	packets, err := strconv.ParseInt(string(counts[1]), 10, 64)
	if err != nil {
		return fmt.Errorf("%s: %w", a, err)
	}
	dropped, err := strconv.ParseInt(string(counts[2]), 10, 64)
	if err != nil {
		return fmt.Errorf("%s: %w", a, err)
	}
	r.Journal.Event("capture", "", journal.Attributes{"name": a.Name, "packets": packets, "dropped": dropped})
	return nil
}
