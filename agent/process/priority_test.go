package process

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestChildrenHaveNoEBPF: what the agent hands on to the programs that it
// starts is what they need.
func TestChildrenHaveNoEBPF(t *testing.T) {
	if _, _, err := syscall.AllThreadsSyscall(unix.SYS_GETPID, 0, 0, 0); err != 0 || os.Geteuid() != 0 {
		t.Skip("needs root, and a build without cgo, as make builds")
	}
	runtime.LockOSThread() // never unlocked: its capabilities end with it
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		t.Fatal(err)
	}
	handed := []int{unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_NET_RAW}
	for _, c := range handed {
		sets[c/32].Inheritable |= 1 << (c % 32)
	}
	if err := unix.Capset(&header, &sets[0]); err != nil {
		t.Fatal(err)
	}
	for _, c := range handed {
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, uintptr(c), 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	KeepFromChildren()
	out, err := exec.Command("sed", "-n", "s/^CapAmb:\t//p", "/proc/self/status").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := strconv.ParseUint(strings.TrimSpace(string(out)), 16, 64); err != nil || got != 1<<unix.CAP_NET_RAW {
		t.Errorf("a child has %#x, %v", got, err)
	}
}
