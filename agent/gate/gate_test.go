package gate

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// processState is the letter of /proc/PID/stat: R, S, T for stopped, t for traced.
func processState(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(b), ") ")
	return after[:1]
}

func awaitState(t *testing.T, pid int, want string) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		got := processState(t, pid)
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process is in state %s, not %s", got, want)
		}
	}
}

func startTraced(t *testing.T, stdout *strings.Builder, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout = stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	return cmd
}

func TestStepHoldsAfterWrite(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var out strings.Builder
	cmd := startTraced(t, &out, "sh", "-c", "echo first; echo second")
	writes := 0
	held, err := stepUntil(cmd.Process.Pid, time.Now().Add(10*time.Second), func(systemCall int) (bool, error) {
		if systemCall == unix.SYS_WRITE {
			writes++
		}
		return writes == 2, nil
	})
	if err != nil || !held {
		t.Fatalf("held %v, error %v", held, err)
	}
	awaitState(t, cmd.Process.Pid, "T")
	if err := unix.Kill(cmd.Process.Pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if out.String() != "first\nsecond\n" {
		t.Errorf("output %q", out.String())
	}
}

func TestStepGivesUpAtDeadline(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := startTraced(t, new(strings.Builder), "sleep", "60")
	deadline := time.Now().Add(300 * time.Millisecond)
	held, err := stepUntil(cmd.Process.Pid, deadline, func(int) (bool, error) { return false, nil })
	if err != nil || held || time.Now().Before(deadline) {
		t.Fatalf("held %v, error %v, %v before the deadline", held, err, time.Until(deadline))
	}
	awaitState(t, cmd.Process.Pid, "S") // sleeping on, neither stopped nor traced
}

func TestStepSeesTheEnd(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := startTraced(t, new(strings.Builder), "sh", "-c", "exit 7")
	held, err := stepUntil(cmd.Process.Pid, time.Now().Add(10*time.Second), func(int) (bool, error) { return false, nil })
	if err != nil || held {
		t.Fatalf("held %v, error %v", held, err)
	}
	if cmd.Wait(); cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("exit code %d, want 7", cmd.ProcessState.ExitCode())
	}
}
