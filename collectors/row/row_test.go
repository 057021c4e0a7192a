package row

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"dumbbell/collectors/clock"

	"github.com/influxdata/line-protocol/v2/lineprotocol"
)

func newRows(t testing.TB) *Rows {
	t.Helper()
	clock, err := clock.New()
	if err != nil {
		t.Fatal(err)
	}
	return NewRows(clock)
}

// decodeOne decodes the only row with the library that InfluxDB uses.
func decodeOne(t testing.TB, rows *Rows) (measurement string, tags map[string]string, fields map[string]any, at time.Time) {
	t.Helper()
	if n := strings.Count(string(rows.Bytes()), "\n"); n != 1 {
		t.Fatalf("%d lines: %q", n, rows.Bytes())
	}
	d := lineprotocol.NewDecoderWithBytes(rows.Bytes())
	if !d.Next() {
		t.Fatal("no row")
	}
	fail := func(err error) {
		if err != nil {
			t.Fatalf("%v: %q", err, rows.Bytes())
		}
	}
	m, err := d.Measurement()
	fail(err)
	tags, fields = make(map[string]string), make(map[string]any)
	for {
		k, v, err := d.NextTag()
		fail(err)
		if k == nil {
			break
		}
		tags[string(k)] = string(v)
	}
	for {
		k, v, err := d.NextField()
		fail(err)
		if k == nil {
			break
		}
		fields[string(k)] = v.Interface()
	}
	at, err = d.Time(lineprotocol.Nanosecond, time.Time{})
	fail(err)
	return string(m), tags, fields, at
}

func TestRow(t *testing.T) {
	rows := newRows(t)
	rows.Begin(NewSeries("m", Tags{"run": "r 1", "host": "a,b", "none": ""}))
	rows.Int("i", -5)
	rows.Float("f", 0.25)
	rows.Float("nan", math.NaN())
	rows.Bool("b", true)
	rows.String("s", `say "\" twice`)
	now := time.Now()
	rows.End(now)
	m, tags, fields, at := decodeOne(t, rows)
	if m != "m" || len(tags) != 2 || tags["run"] != "r 1" || tags["host"] != "a,b" || !at.Equal(now.Truncate(0)) {
		t.Errorf("%s %v %v", m, tags, at)
	}
	mono, ok := fields["mono_ns"].(int64)
	delete(fields, "mono_ns")
	if len(fields) != 4 || fields["i"] != int64(-5) || fields["f"] != 0.25 || fields["b"] != true || fields["s"] != `say "\" twice` || !ok || mono <= 0 {
		t.Errorf("%v, mono_ns %d", fields, mono)
	}
}

func TestInts(t *testing.T) {
	values := []int64{0, 1, 9, 10, 99, 100, -1, -10, math.MaxInt64, math.MinInt64, math.MaxUint32}
	for v := int64(1); v < math.MaxInt64/10; v *= 10 {
		values = append(values, v-1, v, v+1, -v, 9*v)
	}
	keys, want := make([]Key, len(values)), "m "
	for i, v := range values {
		keys[i] = NewKey(fmt.Sprint("f", i))
		want += fmt.Sprintf("f%d=%di,", i, v)
	}
	rows := newRows(t)
	rows.Begin(NewSeries("m", nil))
	rows.Ints(keys, values)
	if got := string(rows.buffer); got != want {
		t.Errorf("%s\nnot\n%s", got, want)
	}
}

func TestRowWithoutFieldsLeavesNothing(t *testing.T) {
	rows := newRows(t)
	rows.Begin(NewSeries("m", nil))
	rows.End(time.Now())
	rows.Begin(NewSeries("m", nil))
	rows.Int("i", 1)
	rows.End(time.Now())
	if rows.Len() != 1 || !strings.HasPrefix(string(rows.Bytes()), "m i=1i,") {
		t.Errorf("%d rows: %q", rows.Len(), rows.Bytes())
	}
}

func FuzzRow(f *testing.F) {
	f.Add("host", "text")
	f.Add("a\\", "b\"\\\n")
	f.Add("\xff=, ", "")
	f.Fuzz(func(t *testing.T, tag, text string) {
		if !utf8.ValidString(text) || strings.ContainsAny(text, "\r\n\x00") {
			return
		}
		rows := newRows(t)
		rows.Begin(NewSeries("m", Tags{"tag": tag}))
		rows.String("s", text)
		rows.End(time.Now())
		_, tags, fields, _ := decodeOne(t, rows)
		if fields["s"] != text || len(tags) > 1 {
			t.Errorf("%q became %v, %v", text, tags, fields)
		}
	})
}

func BenchmarkRow(b *testing.B) {
	rows, series := newRows(b), NewSeries("tcp_info", Tags{"run": "r", "host": "h", "flow": "f"})
	keys, values := make([]Key, 70), make([]int64, 70)
	for i := range keys {
		keys[i], values[i] = NewKey(strings.Repeat("x", 11)), int64(i*i*i)
	}
	b.ReportAllocs()
	for b.Loop() {
		rows.Reset()
		rows.Begin(series)
		rows.Ints(keys, values)
		rows.End(time.Time{})
	}
}
