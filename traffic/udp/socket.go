package udp

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// sleep sleeps for a short time; a signal may cut it short.
func sleep(d time.Duration) {
	ts := unix.NsecToTimespec(d.Nanoseconds())
	unix.Nanosleep(&ts, nil)
}

func interrupted(err error) bool { return errors.Is(err, unix.EINTR) }
