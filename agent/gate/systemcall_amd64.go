package gate

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// systemCallNumber reads which system call a stopped process begins or ends.
// User-Mode Linux refuses PTRACE_GETREGS, so the one register is read from
// struct user.
func systemCallNumber(pid int) (int, error) {
	const origRAX = 15 * 8 // ORIG_RAX of sys/reg.h, in words
	var register [8]byte
	if _, err := unix.PtracePeekUser(pid, origRAX, register[:]); err != nil {
		return 0, err
	}
	return int(binary.NativeEndian.Uint64(register[:])), nil
}

// waitCalls are the system calls by which select(3) waits.
var waitCalls = []int{unix.SYS_SELECT, unix.SYS_PSELECT6}
