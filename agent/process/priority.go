package process

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// InheritedNice is the niceness that the agent was started with, and that the
// processes it starts get.
var InheritedNice = Niceness()

// Niceness reads the niceness of this thread.
func Niceness() int {
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0) // the system call returns 20-nice
	if err != nil {
		return 0
	}
	return 20 - raw
}

// KeepFromChildren keeps the capabilities for eBPF, which the agent may have
// been given, from the programs that it starts.
func KeepFromChildren() {
	for _, capability := range []uintptr{unix.CAP_BPF, unix.CAP_PERFMON} {
		syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_LOWER, capability, 0, 0, 0)
	}
}
