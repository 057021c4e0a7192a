package spool

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dumbbell/collectors/clock"
	"dumbbell/collectors/row"

	"golang.org/x/sys/unix"
)

func open(t testing.TB, path string) (*Writer, int64) {
	t.Helper()
	w, torn, err := Open(path, clock.Clock{}) // whose mono_ns is always the same
	if err != nil {
		t.Fatal(err)
	}
	return w, torn
}

func addRow(t testing.TB, w *Writer, n int64) {
	t.Helper()
	err := w.Add(func(rows *row.Rows) error {
		rows.Begin("m,host=a")
		rows.Int("n", n)
		rows.End(time.Unix(0, n))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func flush(t testing.TB, w *Writer) {
	t.Helper()
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
}

// twoBatches returns the content of a spool and the length of its first batch.
func twoBatches(t testing.TB) (content []byte, first int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "spool.lp")
	w, _ := open(t, path)
	addRow(t, w, 1)
	addRow(t, w, 2)
	flush(t, w)
	addRow(t, w, 3)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content, bytes.Index(content, []byte("m,host=a n=3i"))
}

func TestFormat(t *testing.T) {
	const mono = ",mono_ns=9223372036854775807i"
	const want = "m,host=a n=1i" + mono + " 1\nm,host=a n=2i" + mono + " 2\n# batch=1 rows=2 crc32=ee3dcd00\n" +
		"m,host=a n=3i" + mono + " 3\n# batch=2 rows=1 crc32=00b4f08c\n" // checksums by zlib.crc32 of Python
	if got, _ := twoBatches(t); string(got) != want {
		t.Errorf("spool is\n%swant\n%s", got, want)
	}
}

func TestEmptyBatchIsNotWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool.lp")
	w, _ := open(t, path)
	flush(t, w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(path); len(b) > 0 {
		t.Errorf("spool without rows is %q", b)
	}
}

// TestRestart cuts a spool at every byte and goes on writing: complete batches
// stay, the rest is reported and removed, and the numbers continue.
func TestRestart(t *testing.T) {
	content, first := twoBatches(t)
	path := filepath.Join(t.TempDir(), "spool.lp")
	for cut := range len(content) + 1 {
		if err := os.WriteFile(path, content[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		kept, batches, rows := 0, 0, 0
		if cut >= first {
			kept, batches, rows = first, 1, 2
		}
		if cut == len(content) {
			kept, batches, rows = cut, 2, 3
		}
		w, torn := open(t, path)
		if int(torn) != cut-kept {
			t.Errorf("cut at %d: %d bytes torn, want %d", cut, torn, cut-kept)
		}
		addRow(t, w, 9)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Scan(f, 1)
		f.Close()
		if err != nil || got.Batch != batches+1 || got.Rows != rows+1 {
			t.Errorf("cut at %d: %+v, %v; want %d batches, %d rows", cut, got, err, batches+1, rows+1)
		}
	}
}

func TestDamageIsRefused(t *testing.T) {
	content, first := twoBatches(t)
	for name, damage := range map[string]func(b []byte) []byte{
		"changed digit": func(b []byte) []byte { b[strings.Index(string(b), "n=1i")+2] = '7'; return b },
		"lost row":      func(b []byte) []byte { return b[bytes.IndexByte(b, '\n')+1:] },
		"lost batch":    func(b []byte) []byte { return b[first:] },
		"twice":         func(b []byte) []byte { return append(b[:first:first], b[:first]...) },
	} {
		b := damage(bytes.Clone(content))
		if _, err := Scan(bytes.NewReader(b), 1); err == nil || errors.Is(err, ErrTorn) {
			t.Errorf("%s: Scan says %v", name, err)
		}
		path := filepath.Join(t.TempDir(), "spool.lp")
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Open(path, clock.Clock{}); err == nil {
			t.Errorf("%s: opened", name)
		}
		if after, _ := os.ReadFile(path); !bytes.Equal(after, b) {
			t.Errorf("%s: a refused spool was changed", name)
		}
	}
}

func TestFlushDue(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool.lp")
	w, _ := open(t, path)
	defer w.Close()
	size := func() int64 {
		s, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return s.Size()
	}
	w.flushed = time.Now()
	addRow(t, w, 1)
	if err := w.FlushDue(time.Millisecond); err != nil || size() != 0 {
		t.Errorf("flushed %d bytes although the next row is near (%v)", size(), err)
	}
	if err := w.FlushDue(time.Second); err != nil || size() == 0 {
		t.Errorf("not flushed although the next row is a second away (%v)", err)
	}
}

// TestSegments: a spool in many files has every batch once, in order; old files
// are compressed; a writer that was killed goes on in the last.
func TestSegments(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool.lp")
	w, _ := open(t, path)
	w.segmentBytes, w.plainSegments = 300, 2
	const batches = 100
	for n := range int64(batches) {
		addRow(t, w, n)
		flush(t, w)
		if n == batches/2 { // a crash: the writer is forgotten
			if err := w.packer.wait(); err != nil {
				t.Fatal(err)
			}
			tear(t, w.file.Name())
			var torn int64
			w, torn = open(t, path)
			w.segmentBytes, w.plainSegments = 300, 2
			if torn != 5 {
				t.Errorf("%d bytes torn", torn)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	segments, err := Segments(path)
	if err != nil {
		t.Fatal(err)
	}
	due, plain := 1, 0
	for i, s := range segments {
		if s.Number != i+1 {
			t.Errorf("file %d is %+v", i+1, s)
		}
		f, err := os.Open(s.Path)
		if err != nil {
			t.Fatal(err)
		}
		var r io.Reader = f
		if strings.HasSuffix(s.Path, ".gz") {
			if r, err = gzip.NewReader(f); err != nil {
				t.Fatal(err)
			}
		} else {
			plain++
		}
		done, err := Scan(r, due)
		f.Close()
		if err != nil {
			t.Fatalf("%s: %v", s.Path, err)
		}
		due = done.Batch + 1
	}
	if due != batches+1 || plain != 2 || len(segments) < 10 {
		t.Errorf("%d batches in %d files, %d of them not compressed", due-1, len(segments), plain)
	}
}

// tear appends what a writer leaves that is killed while it writes.
func tear(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("m,hos"); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkPack(b *testing.B) {
	dir := b.TempDir()
	rows := row.NewRows(clock.Clock{})
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range int64(20000) {
		rows.Begin("tcp_info,flow=flow1,host=sender1,run=20261121T120000Z")
		for i := range 80 {
			v := int64(i * i)
			if i%4 == 0 { // a quarter of the fields of a busy flow move
				v = n*1000 + rng.Int64N(100000)
			}
			rows.Int("some_name_bytes", v)
		}
		rows.End(time.Unix(0, n*1e8))
	}
	var packed int64
	for i := 0; b.Loop(); i++ {
		path := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(path, rows.Bytes(), 0o644); err != nil {
			b.Fatal(err)
		}
		if err := pack(path); err != nil {
			b.Fatal(err)
		}
		stat, err := os.Stat(path + ".gz")
		if err != nil {
			b.Fatal(err)
		}
		packed = stat.Size()
	}
	b.SetBytes(int64(len(rows.Bytes())))
	b.ReportMetric(float64(len(rows.Bytes()))/float64(packed), "ratio")
}

func TestPack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool.lp")
	w, _ := open(t, path)
	w.segmentBytes = 1
	for n := range int64(3) {
		addRow(t, w, n)
		flush(t, w)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time there is nothing to do
		if err := Pack(path); err != nil {
			t.Fatal(err)
		}
		segments, err := Segments(path)
		if err != nil || len(segments) < 2 {
			t.Fatalf("%+v, %v", segments, err)
		}
		for _, s := range segments {
			if !strings.HasSuffix(s.Path, ".lp.gz") {
				t.Errorf("%s is not compressed", s.Path)
			}
		}
	}
}

// TestNoPartOfABatch follows a spool on a full disk as a reader of it does: by
// inotify, it hears of no part of a batch.
func TestNoPartOfABatch(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("a small file system cannot be mounted: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	path := filepath.Join(dir, "spool.lp")
	w, _ := open(t, path)
	addRow(t, w, 1)
	flush(t, w)
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(watch)
	if _, err := unix.InotifyAddWatch(watch, path, unix.IN_MODIFY); err != nil {
		t.Fatal(err)
	}

	const tooMany = 5000
	for n := range int64(tooMany) {
		addRow(t, w, n)
	}
	flush(t, w)
	if n, err := unix.Read(watch, make([]byte, 4096)); err != unix.EAGAIN {
		t.Errorf("the file was changed: %d bytes of events, %v", n, err)
	}
	addRow(t, w, 2)
	flush(t, w) // for this there is room
	if err := w.Close(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%d rows are not in the spool", tooMany)) {
		t.Errorf("closed: %v", err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if done, err := Scan(bytes.NewReader(content), 1); err != nil || done.Rows != 2 {
		t.Errorf("%+v, %v", done, err)
	}
}
