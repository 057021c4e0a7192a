package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// leftDirectory is a run directory whose agent has ended, within one of its run.
func leftDirectory(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "run", "measurement")
	if err := os.MkdirAll(filepath.Join(dir, "below"), 0o750); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"plan.json": `{"virtual": false}`, "events.jsonl": "{}\n", "b.txt": "second", "a.txt": "first", "below/c.txt": strings.Repeat("third", 1e5)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func mustArchive(t *testing.T, dir string) []byte {
	t.Helper()
	if err := Archive(dir); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(dir + ".tgz")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func unpacked(t *testing.T, b []byte) (names []string, content map[string]string) {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	plain.Multistream(false) // zeros may follow
	content = make(map[string]string)
	for packed := tar.NewReader(plain); ; {
		header, err := packed.Next()
		if err == io.EOF {
			return names, content
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(packed)
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.Gid != 0 || header.Uname != "" || header.ModTime.Unix() != 0 {
			t.Errorf("%s tells of more than its content: %+v", header.Name, header)
		}
		names = append(names, header.Name)
		content[header.Name] = string(text)
	}
}

// TestArchive packs what there is in an order of its own, and not what links show.
func TestArchive(t *testing.T) {
	dir := leftDirectory(t)
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	first := mustArchive(t, dir)
	names, content := unpacked(t, first)
	want := []string{"./", "./a.txt", "./b.txt", "./below/", "./below/c.txt", "./events.jsonl", "./link", "./plan.json"}
	if !slices.Equal(names, want) {
		t.Errorf("it has %q, want %q", names, want)
	}
	if content["./a.txt"] != "first" || len(content["./below/c.txt"]) != 5e5 || content["./link"] != "" {
		t.Errorf("it has another content: %.200q", content)
	}
	if stat, err := os.Stat(dir + ".tgz"); err != nil || stat.Mode() != 0o640 {
		t.Errorf("mode %v, %v", stat.Mode(), err)
	}

	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "a.txt"), later, later); err != nil {
		t.Fatal(err)
	}
	if again := mustArchive(t, dir); !bytes.Equal(again, first) {
		t.Error("an archive of the same content differs, by when it was made")
	}
	if left, err := filepath.Glob(dir + ".tgz.*"); err != nil || left != nil {
		t.Errorf("it left %q, %v", left, err)
	}
}

// TestArchiveIsMadeOnce for a content: a file that is newer needs another.
func TestArchiveIsMadeOnce(t *testing.T) {
	dir := leftDirectory(t)
	mustArchive(t, dir)
	before, err := os.Stat(dir + ".tgz")
	if err != nil {
		t.Fatal(err)
	}
	mustArchive(t, dir)
	if after, err := os.Stat(dir + ".tgz"); err != nil || !os.SameFile(before, after) {
		t.Errorf("it was made again, though nothing changed: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "b.txt"), []byte("changed"), 0o640); err != nil {
		t.Fatal(err)
	}
	later := before.ModTime().Add(time.Millisecond)
	if err := os.Chtimes(filepath.Join(dir, "b.txt"), later, later); err != nil {
		t.Fatal(err)
	}
	if _, content := unpacked(t, mustArchive(t, dir)); content["./b.txt"] != "changed" {
		t.Errorf("a newer file is not in it: %.200q", content["./b.txt"])
	}
}

// TestVirtualArchive has a length that tells nothing, and is readable by tar.
func TestVirtualArchive(t *testing.T) {
	dir := leftDirectory(t)
	if err := os.WriteFile(filepath.Join(dir, "plan.json"), []byte(`{"virtual": true, "other": 1}`), 0o640); err != nil {
		t.Fatal(err)
	}
	b := mustArchive(t, dir)
	if len(b) != 1<<20 {
		t.Errorf("it has %d bytes", len(b))
	}
	if _, content := unpacked(t, b); content["./a.txt"] != "first" {
		t.Errorf("it has another content: %.200q", content)
	}
	to := t.TempDir()
	if out, err := exec.Command("tar", "--extract", "--gzip", "--file", dir+".tgz", "--directory", to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got, err := os.ReadFile(filepath.Join(to, "b.txt")); err != nil || string(got) != "second" {
		t.Errorf("tar finds %q, %v", got, err)
	}
}

// TestPackDeletesArchives, which have been fetched when a run is stored.
func TestPackDeletesArchives(t *testing.T) {
	dir := leftDirectory(t)
	mustArchive(t, dir)
	stored := t.TempDir()
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
func awaiting(t *testing.T, dir, what, timeout string) (found Awaited, took time.Duration) {
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

// TestAwait waits for what an agent comes to: armed, ended and packed.
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
	ended := make(chan Awaited)
	go func() {
		found, _ := awaiting(t, a.dir, "ended", "40s")
		ended <- found
	}()
	a.end("done", 0)
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
	b, err := os.ReadFile(a.dir + ".tgz")
	if err != nil {
		t.Fatal(err)
	}
	if _, content := unpacked(t, b); !strings.Contains(content["./status.json"], `"state":"done"`) ||
		!strings.Contains(content["./events.jsonl"], `"event":"done"`) {
		t.Errorf("the archive has %.500q", content)
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
	if found, took := awaiting(t, a.dir, "ended", "60s"); found.State != "gone" || took < goneTimeout || took > goneTimeout+5*time.Second ||
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
	if out, err := second.CombinedOutput(); err == nil || !strings.Contains(string(out), errAtWork.Error()) {
		t.Errorf("a second agent: %v: %s", err, out)
	}
	if s := a.status(); s.State != "armed" {
		t.Errorf("the first is %+v", s)
	}
}

// TestPatience: who packs asks systemd for more time than it gives.
func TestPatience(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	heard, err := net.ListenPacket("unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	defer heard.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	mustArchive(t, leftDirectory(t))
	heard.SetReadDeadline(time.Now().Add(5 * time.Second))
	b := make([]byte, 100)
	if n, _, err := heard.ReadFrom(b); err != nil || string(b[:n]) != "EXTEND_TIMEOUT_USEC=60000000" {
		t.Errorf("%q, %v", b[:n], err)
	}
}
