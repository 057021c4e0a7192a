package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lockMargin is how long after the end of a phase its run still has the host,
// so that the next phase of the run can be armed.
const lockMargin = 5 * time.Minute

// A Hold is the content of a host's lock file: which run has the host, and
// until when. It ends by itself, and with the boot in which it was taken, since
// a reboot undoes the state that the run gave the host.
type Hold struct {
	RunID       string `json:"run_id"`
	Owner       string `json:"owner"`
	UntilUnixNs int64  `json:"until_unix_ns"`
	BootID      string `json:"boot_id"`
}

// takeHost takes the host for a run until a time, or keeps it longer. It is
// refused while another run has it, and the error says which and until when.
func takeHost(path string, hold Hold) error {
	return withHold(path, func(now Hold) (Hold, error) {
		if hold.BootID = bootID(); now.valid() && now.RunID != hold.RunID {
			return now, fmt.Errorf("the host belongs to run %s of %s until %s (dumbbell-agent unlock --run %s gives it back)",
				now.RunID, now.Owner, time.Unix(0, now.UntilUnixNs).UTC().Format(time.RFC3339), now.RunID)
		}
		if now.valid() && hold.Owner == "" {
			hold.Owner = now.Owner
		}
		return hold, nil
	})
}

// releaseHost gives the host back, if the run still has it.
func releaseHost(path, runID string) error {
	return withHold(path, func(now Hold) (Hold, error) {
		if now.RunID == runID {
			return Hold{}, nil
		}
		return now, nil
	})
}

func (h Hold) valid() bool {
	return h.RunID != "" && time.Now().UnixNano() < h.UntilUnixNs && h.BootID == bootID()
}

// withHold changes the lock file while no other process does. A file that
// cannot be understood holds nothing: it was cut short by a crash.
func withHold(path string, change func(Hold) (Hold, error)) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("opening the host's lock: %w", err)
	}
	defer f.Close() // which also ends the flock
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("locking %s: %w", path, err)
	}
	var hold Hold
	if json.NewDecoder(f).Decode(&hold) != nil {
		hold = Hold{}
	}
	if hold, err = change(hold); err != nil {
		return err
	}
	b, err := json.Marshal(hold)
	if err != nil {
		return err
	}
	b = append(b, '\n')
	_, err = f.WriteAt(b, 0)
	if err == nil { // whoever ends here leaves what was there before behind what is there now
		err = f.Truncate(int64(len(b)))
	}
	if err = errors.Join(err, ownedLikeDirectory(f, path)); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// ownedLikeDirectory lets the agent's user change a lock that root has made.
func ownedLikeDirectory(f *os.File, path string) error {
	var directory unix.Stat_t
	if err := unix.Stat(filepath.Dir(path), &directory); err != nil || os.Geteuid() != 0 {
		return err
	}
	return f.Chown(int(directory.Uid), int(directory.Gid))
}

func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}

// defaultLock is the lock of a host that a controller uses.
const defaultLock = "/var/lib/dumbbell/runs/lock.json"

func mainLock(args []string) int {
	var (
		flags = newFlags("lock")
		path  = flags.String("file", defaultLock, "`path` of the host's lock")
		runID = flags.String("run", "", "`id` of the run that takes the host, or keeps it")
		owner = flags.String("owner", "", "`who` runs it, for those who are refused")
		hold  = flags.Duration("for", 15*time.Minute, "`time` after which the host is free again")
	)
	if !parseFlags(flags, args, "run", "owner") {
		return 2
	}
	return lockResult(flags, takeHost(*path, Hold{RunID: *runID, Owner: *owner, UntilUnixNs: time.Now().Add(*hold).UnixNano()}))
}

func mainUnlock(args []string) int {
	flags := newFlags("unlock")
	path := flags.String("file", defaultLock, "`path` of the host's lock")
	runID := flags.String("run", "", "`id` of the run that gives the host back")
	if !parseFlags(flags, args, "run") {
		return 2
	}
	return lockResult(flags, releaseHost(*path, *runID))
}

func lockResult(flags *flag.FlagSet, err error) int {
	if err != nil {
		return failed(flags, err)
	}
	return 0
}
