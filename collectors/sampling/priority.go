package sampling

import (
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Prefer lets this process run before the traffic that it samples, which else
// keeps it waiting for whole time slices where it uses all of a CPU. Without
// the privilege the priority stays as it is.
func Prefer() {
	runtime.GOMAXPROCS(2) // one for the sampler and one for all else; more threads cost wake-ups
	highest := -20
	// Threads have a niceness each; those made later inherit it.
	syscall.AllThreadsSyscall(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 0, uintptr(highest))
}
