package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"math/rand/v2"
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
	if err := Make(dir); err != nil {
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
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(dir), ".*")); err != nil || left != nil {
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

// counted keeps the lengths of writes.
type counted struct {
	bytes.Buffer
	writes []int
}

func (c *counted) Write(b []byte) (int, error) {
	c.writes = append(c.writes, len(b))
	return c.Buffer.Write(b)
}

// TestVirtualArchiveIsWrittenAlike: what is harder to compress takes no other
// writes, each of which would let virtual time go on.
func TestVirtualArchiveIsWrittenAlike(t *testing.T) {
	dir, random := leftDirectory(t), make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{}).Read(random)
	for _, size := range []int{0, 1, 100_000, 500_000} {
		if err := os.WriteFile(filepath.Join(dir, "b.txt"), random[:size], 0o640); err != nil {
			t.Fatal(err)
		}
		var to counted
		if err := writeBlocks(&to, dir, true); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(to.writes, []int{1 << 20}) {
			t.Errorf("with %d bytes that cannot be compressed it is written as %v", size, to.writes)
		}
		if _, content := unpacked(t, to.Bytes()); content["./b.txt"] != string(random[:size]) {
			t.Errorf("%d bytes are not as they were", size)
		}
	}
	var to counted
	if err := os.WriteFile(filepath.Join(dir, "b.txt"), random, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := writeBlocks(&to, dir, true); err != nil || !slices.Equal(to.writes, []int{1 << 20, 1 << 20}) {
		t.Errorf("what needs more than a block is written as %v, %v", to.writes, err)
	}
	if got := to.Bytes(); got[len(got)-1] != 0 {
		t.Error("the last block is not filled with zeros")
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
