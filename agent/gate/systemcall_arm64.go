package gate

import "golang.org/x/sys/unix"

// systemCallNumber reads which system call a stopped process begins or ends.
func systemCallNumber(pid int) (int, error) {
	const generalRegisters = 1 // NT_PRSTATUS; arm64 has no PTRACE_GETREGS
	var registers unix.PtraceRegsArm64
	if err := unix.PtraceGetRegSetArm64(pid, generalRegisters, &registers); err != nil {
		return 0, err
	}
	return int(registers.Regs[8]), nil
}

// waitCalls are the system calls by which select(3) waits.
var waitCalls = []int{unix.SYS_PSELECT6}
