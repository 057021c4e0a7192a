package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dumbbell/agent/journal"
	"dumbbell/agent/observed"
	"dumbbell/agent/phase"
	"dumbbell/collectors/observe"

	"golang.org/x/sys/unix"
)

// checkObserved checks that a phase has read the host before and after.
func checkObserved(t *testing.T, dir string) (found observed.Readings) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, observed.File))
	if err != nil || json.Unmarshal(b, &found) != nil || found.Before == nil || found.After == nil {
		t.Fatalf("%v: %s", err, b)
	}
	if found.Before.Settings["net.ipv4.tcp_sack"] == "" || found.Before.BootID != found.After.BootID || found.Before.UnixNs >= found.After.UnixNs {
		t.Errorf("before %s at %d, after %s at %d", found.Before.BootID, found.Before.UnixNs, found.After.BootID, found.After.UnixNs)
	}
	return found
}

// TestObserveOtherPhase: only a measurement is read.
func TestObserveOtherPhase(t *testing.T) {
	t.Parallel()
	p := emptyPlan()
	p.Phase = "calibration"
	a := startAgent(t, p)
	a.start()
	a.end("done", 0)
	if _, err := os.Stat(filepath.Join(a.dir, observed.File)); !errors.Is(err, fs.ErrNotExist) {
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
	r, err := phase.Open(dir, "version")
	if err != nil {
		t.Fatal(err)
	}
	large := &observe.Reading{Settings: map[string]string{"a lot": strings.Repeat("x", 300<<10)}}
	if err := observed.Write(dir, r.Journal, observed.Readings{Before: large}); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("writing more than there is room for: %v", err)
	}
	if state, err := end(r, "failed", errors.New("why")); state != "failed" || err.Error() != "why" {
		t.Errorf("it ends as %s: %v", state, err)
	}
	if s := journal.ReadStatus(dir); s.State != "failed" || s.Reason != "why" {
		t.Errorf("status %+v", s)
	}
}
