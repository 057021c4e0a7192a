package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dumbbell/agent/archive"
	"dumbbell/agent/await"
	"dumbbell/agent/journal"
)

// TestPackDeletesArchives, which have been fetched when a run is stored.
func TestPackDeletesArchives(t *testing.T) {
	dir, stored := filepath.Join(t.TempDir(), "run", "measurement"), t.TempDir()
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("first"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := archive.Make(dir); err != nil {
		t.Fatal(err)
	}
	if code := mainPack(filepath.Dir(dir), stored); code != 0 {
		t.Fatalf("exit status %d", code)
	}
	if _, err := os.Stat(filepath.Join(stored, "run", "measurement", "a.txt")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(stored, "run", "measurement.tgz")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the archive is still there: %v", err)
	}
}

// awaiting asks what became of an agent, as a controller does.
func awaiting(t *testing.T, dir, what, timeout string) (found await.Awaited, took time.Duration) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "await", dir, what, "--timeout", timeout)
	cmd.Env = append(os.Environ(), "DUMBBELL_TEST_AS_AGENT=1")
	begun := time.Now()
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &found)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if now := time.Unix(0, found.NowUnixNs); now.Before(begun) || now.After(time.Now()) {
		t.Errorf("it says that now is %v", now)
	}
	return found, time.Since(begun)
}

// TestAwait waits for what an agent comes to: armed, over, and its results packed.
func TestAwait(t *testing.T) {
	t.Parallel()
	a := startAgent(t, emptyPlan())
	if found, _ := awaiting(t, a.dir, "armed", "20s"); found.State != "armed" || found.Reason != "" || found.LeadNs <= 0 {
		t.Errorf("it found %+v", found)
	}
	if found, took := awaiting(t, a.dir, "ended", "300ms"); found.State != "silent" || took < 300*time.Millisecond ||
		found.Reason != "it is not ended within 300ms, it was armed" {
		t.Errorf("of one that does not end it found %+v after %v", found, took)
	}
	a.start()
	ended := make(chan await.Awaited)
	go func() {
		found, _ := awaiting(t, a.dir, "ended", "40s")
		ended <- found
	}()
	a.end("done", 0)
	if found, _ := awaiting(t, a.dir, "over", "20s"); found.State != "done" {
		t.Errorf("of one that is over it found %+v", found)
	}
	select {
	case found := <-ended:
		t.Errorf("it found %+v before the archive was there", found)
	case <-time.After(100 * time.Millisecond):
	}
	if err := a.finish("exited"); err != nil {
		t.Fatal(err)
	}
	if found := <-ended; found.State != "done" {
		t.Errorf("it found %+v", found)
	}
	for name, want := range map[string]string{"./status.json": `"state":"done"`, "./events.jsonl": `"event":"done"`} {
		content, err := exec.Command("tar", "--extract", "--gzip", "--to-stdout", "--file", a.dir+".tgz", name).Output()
		if err != nil || !strings.Contains(string(content), want) {
			t.Errorf("%s in the archive is %.500q, %v", name, content, err)
		}
	}
}

// TestAwaitFailure: an agent that cannot be armed is told at once.
func TestAwaitFailure(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "plan.json"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	launchAgent(t, dir)
	if found, took := awaiting(t, dir, "armed", "20s"); found.State != "failed" || !strings.Contains(found.Reason, "run_id: missing") || took > 10*time.Second {
		t.Errorf("it found %+v after %v", found, took)
	}
}

// TestAwaitKilled: what has no agent any more is not waited for until it is too late.
func TestAwaitKilled(t *testing.T) {
	t.Parallel()
	a := startAgent(t, emptyPlan())
	a.await("arming", func() bool { return a.status().State == "armed" })
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-a.exited
	if found, took := awaiting(t, a.dir, "ended", "60s"); found.State != "gone" || took < await.GoneTimeout || took > await.GoneTimeout+5*time.Second ||
		found.Reason != "its process has ended without a last word, it was armed" {
		t.Errorf("it found %+v after %v", found, took)
	}
	if err := a.finish("killed"); err != nil {
		t.Fatal(err)
	}
	if found, took := awaiting(t, a.dir, "ended", "60s"); found.State != "failed" || took > 5*time.Second ||
		found.Reason != "the agent was killed while it was armed" {
		t.Errorf("it found %+v after %v", found, took)
	}
}

// TestOneAtWork: two agents in one directory would write into each other's files.
func TestOneAtWork(t *testing.T) {
	t.Parallel()
	a := startAgent(t, emptyPlan())
	a.await("arming", func() bool { return a.status().State == "armed" })
	second := exec.Command(os.Args[0], "run", a.dir)
	second.Env = append(os.Environ(), "DUMBBELL_TEST_AS_AGENT=1")
	if out, err := second.CombinedOutput(); err == nil || !strings.Contains(string(out), journal.ErrAtWork.Error()) {
		t.Errorf("a second agent: %v: %s", err, out)
	}
	if s := a.status(); s.State != "armed" {
		t.Errorf("the first is %+v", s)
	}
}
