package spool

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/influxdata/line-protocol/v2/lineprotocol"
)

func open(t testing.TB, path string) (*Writer, int64) {
	t.Helper()
	w, torn, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return w, torn
}

func row(t testing.TB, w *Writer, n int64) {
	t.Helper()
	line := w.Row("m")
	line.AddTag("host", "a")
	line.AddField("n", lineprotocol.IntValue(n))
	if err := w.End(time.Unix(0, n)); err != nil {
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
	row(t, w, 1)
	row(t, w, 2)
	flush(t, w)
	row(t, w, 3)
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
	const want = "m,host=a n=1i 1\nm,host=a n=2i 2\n# batch=1 rows=2 crc32=7ae3637e\n" +
		"m,host=a n=3i 3\n# batch=2 rows=1 crc32=5afa9213\n" // checksums by zlib.crc32 of Python
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
		row(t, w, 9)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Scan(f)
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
		if _, err := Scan(bytes.NewReader(b)); err == nil || errors.Is(err, ErrTorn) {
			t.Errorf("%s: Scan says %v", name, err)
		}
		path := filepath.Join(t.TempDir(), "spool.lp")
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Open(path); err == nil {
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
	row(t, w, 1)
	if err := w.FlushDue(time.Millisecond); err != nil || size() != 0 {
		t.Errorf("flushed %d bytes although the next row is near (%v)", size(), err)
	}
	if err := w.FlushDue(time.Second); err != nil || size() == 0 {
		t.Errorf("not flushed although the next row is a second away (%v)", err)
	}
}

func TestBadRowIsLeftOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool.lp")
	w, _ := open(t, path)
	row(t, w, 1)
	w.Row("m").AddTag("host", "b")
	if err := w.End(time.Unix(0, 2)); err == nil {
		t.Error("a row without fields was accepted")
	}
	row(t, w, 3)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	b, _ := os.ReadFile(path)
	if got, err := Scan(bytes.NewReader(b)); err != nil || got.Rows != 2 || bytes.Contains(b, []byte("host=b")) {
		t.Errorf("%+v, %v: %s", got, err, b)
	}
}

// FuzzRow: whatever a tag or string contains, it is either refused or comes
// back unchanged, and the spool stays whole.
func FuzzRow(f *testing.F) {
	for _, s := range []string{"plain", "a b,c=d", `back\slash`, `"quoted"`, "# batch=1", "line\nbreak", "ü", "\xff", ""} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, tag, text string) {
		path := filepath.Join(t.TempDir(), "spool.lp")
		w, _ := open(t, path)
		line := w.Row("m")
		line.AddTag("tag", tag)
		value, ok := lineprotocol.StringValue(text)
		if ok {
			line.AddField("text", value)
		}
		refused := w.End(time.Unix(0, 5))
		row(t, w, 1)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		rows := 2
		if refused != nil {
			rows = 1
		}
		if got, err := Scan(bytes.NewReader(b)); err != nil || got.Rows != rows {
			t.Errorf("%+v, %v, want %d rows", got, err, rows)
		}
		if refused != nil {
			return
		}
		if !utf8.ValidString(tag) || !utf8.ValidString(text) {
			t.Errorf("accepted invalid UTF-8: %q %q", tag, text)
		}
		d := lineprotocol.NewDecoderWithBytes(b)
		if !d.Next() {
			t.Fatalf("no row in %q", b)
		}
		if _, err := d.Measurement(); err != nil {
			t.Fatal(err)
		}
		if _, got, err := d.NextTag(); err != nil || string(got) != tag {
			t.Errorf("tag %q came back as %q, %v", tag, got, err)
		}
		if k, _, err := d.NextTag(); err != nil || k != nil {
			t.Fatal("more tags:", k, err)
		}
		if _, got, err := d.NextField(); err != nil || got.StringV() != text {
			t.Errorf("text %q came back as %v, %v", text, got, err)
		}
	})
}
