package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
)

const (
	// snapLength is what a capture keeps of a packet: the headers of Ethernet,
	// IPv6 and TCP with all options (14 + 40 + 60), and of tunnels a little.
	snapLength = 128

	// captureBufferKiB holds 40 000 packets of that length while tcpdump waits
	// for a core or the disk.
	captureBufferKiB = 8192
)

// captureCommand is tcpdump's, of an interface, to its standard output.
func captureCommand(device string) []string {
	return []string{"tcpdump", "-i", device, "-p", "-n", "-s", strconv.Itoa(snapLength), "-B", strconv.Itoa(captureBufferKiB),
		"--time-stamp-precision", "nano", "-w", "-"}
}

// captureCounts are tcpdump's last words.
var captureCounts = regexp.MustCompile(`(?m)^(\d+) packets? captured$(?s:.*)^(\d+) packets? dropped by kernel$`)

// runCapture captures until the phase ends, and records how many packets there
// are and how many the kernel had no room for.
func (r *run) runCapture(ctx context.Context, a Action, started func()) error {
	said, err := r.runUntil(ctx, a, r.plan.Duration, started)
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
	r.journal.Event("capture", "", Attributes{"name": a.Name, "packets": packets, "dropped": dropped})
	return nil
}
