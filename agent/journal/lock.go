package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Whoever is at work in a run directory has its events locked. The kernel
// unlocks them when that process ends, however it ends.

const (
	lockPoll = 20 * time.Millisecond

	// busyTimeout is how long another who is at work there is waited for.
	busyTimeout = 30 * time.Second
)

func eventsFile(dir string) string { return filepath.Join(dir, "events.jsonl") }

// lockEvents is refused while another has them.
func lockEvents(f *os.File) error {
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return ErrAtWork
	}
	return err
}

// ErrAtWork refuses a directory whose events another has locked.
var ErrAtWork = errors.New("another dumbbell-agent is at work in that directory")

// Lock waits until the events can be locked. An agent that never began has none.
func Lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(eventsFile(dir), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for giveUp := time.Now().Add(busyTimeout); ; time.Sleep(lockPoll) {
		if err = lockEvents(f); !errors.Is(err, ErrAtWork) || time.Now().After(giveUp) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Locked asks without locking them, which could keep another from it.
func Locked(dir string) bool {
	f, err := os.Open(eventsFile(dir))
	if err != nil {
		return false
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock) == nil && lock.Type != unix.F_UNLCK
}
