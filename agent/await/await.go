// Package await tells a controller when an agent is armed, has ended, or never will be.
package await

import (
	"fmt"
	"time"

	"dumbbell/agent/archive"
	"dumbbell/agent/journal"
)

const (
	poll = 20 * time.Millisecond

	// GoneTimeout is how long nobody may be at work in a run directory before
	// its agent counts as gone: the unit takes some time to end what an agent has
	// started, and to let another finish.
	GoneTimeout = 10 * time.Second
)

// An Awaited is what became of an agent. Its state is that of status.json, or
// gone: its process has ended without a last word; or silent: it has not come so
// far in the time there was.
type Awaited struct {
	State     string `json:"state"`
	Reason    string `json:"reason"`
	NowUnixNs int64  `json:"now_unix_ns"` // by this host's clock, when that was seen
	LeadNs    int64  `json:"lead_ns"`     // how long before t0 the agent needs to have it
}

// Agent waits until an agent is "armed", until it is "over", or until it has
// "ended": over, and its archive is there; or until it is clear that this never
// comes.
func Agent(dir, what string, patience time.Duration) Awaited {
	begun := time.Now()
	for atWork := begun; ; time.Sleep(poll) {
		now := time.Now()
		busy, status := journal.Locked(dir), journal.ReadStatus(dir)
		if busy {
			atWork = now
		}
		found := Awaited{State: status.State, Reason: status.Reason, NowUnixNs: now.UnixNano(), LeadNs: status.Lead}
		switch ended := status.State != "" && !status.Alive(); {
		case what == "armed" && (ended || busy && status.Alive()),
			what == "over" && ended,
			what == "ended" && ended && (archive.Exists(dir) || now.Sub(atWork) > GoneTimeout):
			return found
		case now.Sub(atWork) > GoneTimeout:
			found.State, found.Reason = "gone", "its process has ended without a last word"+wasBefore(status)
			return found
		case now.Sub(begun) > patience:
			found.State, found.Reason = "silent", fmt.Sprintf("it is not %s within %v%s", what, patience, wasBefore(status))
			return found
		}
	}
}

func wasBefore(s journal.Status) string {
	if s.State == "" {
		return ""
	}
	return ", it was " + s.State
}
