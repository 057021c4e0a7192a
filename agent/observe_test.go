package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
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
