package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dumbbell/collectors/observe"

	"golang.org/x/sys/unix"
)

// checkObserved checks that a phase has read the host before and after.
func checkObserved(t *testing.T, dir string) (observed Observed) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, observedFile))
	if err != nil || json.Unmarshal(b, &observed) != nil || observed.Before == nil || observed.After == nil {
		t.Fatalf("%v: %s", err, b)
	}
	if observed.Before.Settings["net.ipv4.tcp_sack"] == "" || observed.Before.BootID != observed.After.BootID || observed.Before.UnixNs >= observed.After.UnixNs {
		t.Errorf("before %s at %d, after %s at %d", observed.Before.BootID, observed.Before.UnixNs, observed.After.BootID, observed.After.UnixNs)
	}
	return observed
}

// TestObserveOtherPhase: only a measurement is read.
func TestObserveOtherPhase(t *testing.T) {
	t.Parallel()
	plan := emptyPlan()
	plan.Phase = "calibration"
	a := startAgent(t, plan)
	a.start()
	a.end("done", 0)
	if _, err := os.Stat(filepath.Join(a.dir, observedFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// TestObservedLeavesRoom: a disk that has no room for it has some for the status.
func TestObservedLeavesRoom(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=220k"); err != nil {
		t.Skipf("a small file system cannot be mounted: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	r, err := openRun(dir, "", "version")
	if err != nil {
		t.Fatal(err)
	}
	large := &observe.Reading{Settings: map[string]string{"a lot": strings.Repeat("x", 300<<10)}}
	if err := r.writeObserved(Observed{Before: large}); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("writing more than there is room for: %v", err)
	}
	if state, err := r.end("failed", errors.New("why")); state != "failed" || err.Error() != "why" {
		t.Errorf("it ends as %s: %v", state, err)
	}
	if s := readStatus(dir); s.State != "failed" || s.Reason != "why" {
		t.Errorf("status %+v", s)
	}
}
