package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	awaitPoll = 20 * time.Millisecond

	// goneTimeout is how long nobody may be at work in a run directory before
	// its agent counts as gone: the unit takes some time to end what an agent has
	// started, and to let another finish.
	goneTimeout = 10 * time.Second

	// busyTimeout is how long another who is at work there is waited for.
	busyTimeout = 30 * time.Second
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

// Await waits until an agent is armed, or until it has ended and its archive is
// there, or until it is clear that neither comes.
func Await(dir, what string, patience time.Duration) Awaited {
	begun := time.Now()
	for atWork := begun; ; time.Sleep(awaitPoll) {
		now := time.Now()
		busy, status := eventsHeld(dir), readStatus(dir)
		if busy {
			atWork = now
		}
		found := Awaited{State: status.State, Reason: status.Reason, NowUnixNs: now.UnixNano(), LeadNs: status.Lead}
		switch ended := status.State != "" && !status.alive(); {
		case what == "armed" && (ended || busy && status.alive()),
			what == "ended" && ended && (archived(dir) || now.Sub(atWork) > goneTimeout):
			return found
		case now.Sub(atWork) > goneTimeout:
			found.State, found.Reason = "gone", "its process has ended without a last word"+wasBefore(status)
			return found
		case now.Sub(begun) > patience:
			found.State, found.Reason = "silent", fmt.Sprintf("it is not %s within %v%s", what, patience, wasBefore(status))
			return found
		}
	}
}

func wasBefore(s Status) string {
	if s.State == "" {
		return ""
	}
	return ", it was " + s.State
}

func archived(dir string) bool {
	_, err := os.Stat(archiveFile(dir))
	return err == nil
}

// Whoever is at work in a run directory has its events locked. The kernel
// unlocks them when that process ends, however it ends.

func eventsFile(dir string) string { return filepath.Join(dir, "events.jsonl") }

// lockEvents is refused while another has them.
func lockEvents(f *os.File) error {
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return errAtWork
	}
	return err
}

var errAtWork = errors.New("another dumbbell-agent is at work in that directory")

// holdEvents waits until the events can be locked. An agent that never began has none.
func holdEvents(dir string) (*os.File, error) {
	f, err := os.OpenFile(eventsFile(dir), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for giveUp := time.Now().Add(busyTimeout); ; time.Sleep(awaitPoll) {
		if err = lockEvents(f); !errors.Is(err, errAtWork) || time.Now().After(giveUp) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// eventsHeld asks without locking them, which could keep another from it.
func eventsHeld(dir string) bool {
	f, err := os.Open(eventsFile(dir))
	if err != nil {
		return false
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock) == nil && lock.Type != unix.F_UNLCK
}

func mainAwait(args []string) int {
	flags := newFlags("await DIR armed|ended")
	timeout := flags.Duration("timeout", 30*time.Second, "`time` after which it is silent")
	if len(args) < 2 || args[1] != "armed" && args[1] != "ended" {
		fmt.Fprintln(os.Stderr, "usage: dumbbell-agent await DIR armed|ended [--timeout 30s]")
		return 2
	}
	if !parseFlags(flags, args[2:]) {
		return 2
	}
	b, err := json.Marshal(Await(args[0], args[1], *timeout))
	if err != nil {
		return failed(flags, err)
	}
	fmt.Println(string(b))
	return 0
}
