// Package hold keeps what belongs to others while a run uses it: whose the host
// is, and what undoes the changes of its path.
package hold

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Margin is how long after the end of a phase its run still has the host,
// so that the next phase of the run can be armed.
const Margin = 5 * time.Minute

// A Host is the content of a host's lock file: which run has the host, and
// until when. It ends by itself, and with the boot in which it was taken, since
// a reboot undoes the state that the run gave the host.
type Host struct {
	RunID       string `json:"run_id"`
	Owner       string `json:"owner"`
	UntilUnixNs int64  `json:"until_unix_ns"`
	BootID      string `json:"boot_id"`
}

// Take takes the host for a run until a time, or keeps it longer. It is
// refused while another run has it, and the error says which and until when.
func Take(path string, host Host) error {
	return change(path, func(now Host) (Host, error) {
		if host.BootID = bootID(); now.valid() && now.RunID != host.RunID {
			return now, fmt.Errorf("the host belongs to run %s of %s until %s (dumbbell-agent unlock --run %s gives it back)",
				now.RunID, now.Owner, time.Unix(0, now.UntilUnixNs).UTC().Format(time.RFC3339), now.RunID)
		}
		if now.valid() && host.Owner == "" {
			host.Owner = now.Owner
		}
		return host, nil
	})
}

// Release gives the host back, if the run still has it.
func Release(path, runID string) error {
	return change(path, func(now Host) (Host, error) {
		if now.RunID == runID {
			return Host{}, nil
		}
		return now, nil
	})
}

func (h Host) valid() bool {
	return h.RunID != "" && time.Now().UnixNano() < h.UntilUnixNs && h.BootID == bootID()
}

// change changes the lock file while no other process does. A file that
// cannot be understood holds nothing: it was cut short by a crash.
func change(path string, to func(Host) (Host, error)) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("opening the host's lock: %w", err)
	}
	defer f.Close() // which also ends the flock
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("locking %s: %w", path, err)
	}
	var host Host
	if json.NewDecoder(f).Decode(&host) != nil {
		host = Host{}
	}
	if host, err = to(host); err != nil {
		return err
	}
	b, err := json.Marshal(host)
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
