package trace

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// TestLeftovers: instances of processes that ended go, those of another PID
// namespace stay, which may be of another host of the same kernel.
func TestLeftovers(t *testing.T) {
	prefix, err := instancePrefix()
	check(t, err)
	ended := exec.Command("true")
	check(t, ended.Run())
	dead := ended.Process.Pid
	root := t.TempDir()
	of := func(prefix string, pid int) string { return fmt.Sprint(prefix, pid) }
	stay := []string{of(prefix, os.Getppid()), of("dumbbell-1-", dead), "dumbbell-other"}
	for _, name := range append(stay, of(prefix, dead), of(prefix, os.Getpid())) {
		check(t, os.MkdirAll(filepath.Join(root, "instances", name), 0o700))
	}
	removeLeftovers(root, prefix)
	entries, err := os.ReadDir(filepath.Join(root, "instances"))
	check(t, err)
	var left []string
	for _, entry := range entries {
		left = append(left, entry.Name())
	}
	slices.Sort(stay)
	if !slices.Equal(left, stay) {
		t.Errorf("left: %q, not %q", left, stay)
	}
}
