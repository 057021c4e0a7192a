// Package live runs atou's two ends over UDP sockets.
//
// A sender has a thread of its own, which allocates nothing while it sends. In
// precise mode each segment leaves by a system call of its own as soon as it
// may, or at its absolute time if the configuration has a gap: the last
// microseconds before it pass in a loop that looks at the clock. In bulk mode
// segments leave in trains that the kernel or the device divides (UDP GSO), and
// the receiver takes and acknowledges whole trains (UDP GRO): several times as
// fast, but what a train's segments did one by one is not to be seen.
//
// A receiver has one socket where flows are opened and, for each flow, a
// connected one with a thread of its own.
package live

import (
	"fmt"
	"slices"
	"time"

	"dumbbell/traffic/socket"

	"golang.org/x/sys/unix"
)

// A Mode is how segments leave.
type Mode int

const (
	Precise Mode = iota // one by one, at their times
	Bulk                // in trains
)

var modes = []string{"precise", "bulk"}

func (m Mode) String() string { return modes[m] }

// ParseMode reads the name of a mode.
func ParseMode(name string) (Mode, error) {
	for i, known := range modes {
		if name == known {
			return Mode(i), nil
		}
	}
	return 0, fmt.Errorf("there is no mode %q; there are precise and bulk", name)
}

// withoutGSO is for tests of hosts that have none.
var withoutGSO bool

// newOutbox gathers the datagrams of a connected socket: in trains in bulk mode.
func newOutbox(fd, largest int, mode Mode) *socket.Batch {
	out := socket.NewTrain(fd, largest, mode == Bulk)
	out.GSO = out.GSO && !withoutGSO
	return out
}

// A clock tells the time since its start.
type clock struct{ start time.Time }

func (c clock) now() time.Duration { return time.Since(c.start) }

// of turns the kernel's stamp of an arrival, which is of CLOCK_REALTIME, into a
// time of this clock. Without one, or if that clock has been set since, it is
// now.
func (c clock) of(unixNs int64) time.Duration {
	t := time.Now()
	now := t.Sub(c.start)
	if age := time.Duration(t.UnixNano() - unixNs); age >= 0 && age < time.Second {
		return max(0, now-age)
	}
	return now
}

// softErrors are those that ICMP tells, or the host's routing: they may pass.
// They may be an earlier datagram's; EPERM, the firewall's of this host, is not
// among them: it has dropped what was to be sent.
var softErrors = []unix.Errno{
	unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.ENETDOWN, unix.EHOSTDOWN, unix.EMSGSIZE, unix.EACCES, unix.ENOPROTOOPT, unix.EPROTO,
}

func soft(err error) bool {
	errno, ok := err.(unix.Errno)
	return ok && slices.Contains(softErrors, errno)
}
