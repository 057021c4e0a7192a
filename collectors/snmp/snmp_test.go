package snmp

import (
	"encoding/json"
	"net"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
	"time"

	"dumbbell/collectors/sample"
)

var row = regexp.MustCompile(`snmp,name=(\w+) total=(-?\d+)i,(?:delta=(-?\d+)i,interval_ns=\d+i,)?mono_ns=`)

func take(t testing.TB, s *Source) (totals, deltas map[string]int64) {
	t.Helper()
	clock, err := sample.NewClock()
	if err != nil {
		t.Fatal(err)
	}
	rows := sample.NewRows(clock)
	if err := s.Sample(rows); err != nil {
		t.Fatal(err)
	}
	totals, deltas = make(map[string]int64), make(map[string]int64)
	for _, m := range row.FindAllSubmatch(rows.Bytes(), -1) {
		totals[string(m[1])], _ = strconv.ParseInt(string(m[2]), 10, 64)
		if len(m[3]) > 0 {
			deltas[string(m[1])], _ = strconv.ParseInt(string(m[3]), 10, 64)
		}
	}
	if len(totals) != rows.Len() {
		t.Fatalf("%d rows, %d understood:\n%s", rows.Len(), len(totals), rows.Bytes())
	}
	return totals, deltas
}

func source(t testing.TB) *Source {
	t.Helper()
	s, err := NewSource(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestAgainstNstat: the first sample has each counter that nstat knows; those
// that did not move meanwhile agree.
func TestAgainstNstat(t *testing.T) {
	if _, err := exec.LookPath("nstat"); err != nil {
		t.Skip("needs iproute2: ", err)
	}
	s := source(t)
	before, _ := take(t, s)
	out, err := exec.Command("nstat", "-asjz").Output()
	if err != nil {
		t.Fatal(err)
	}
	_, changed := take(t, s)
	var nstat struct{ Kernel map[string]int64 }
	if err := json.Unmarshal(out, &nstat); err != nil || len(nstat.Kernel) < 100 {
		t.Fatalf("%v, %d counters of nstat", err, len(nstat.Kernel))
	}
	for name, want := range nstat.Kernel {
		got, ok := before[name]
		// nstat cuts counters of 64 bits to 32.
		if _, moved := changed[name]; !ok || uint32(got) != uint32(want) && !moved {
			t.Errorf("%s is %d (%v), nstat says %d", name, got, ok, want)
		}
	}
}

// TestDelta: one connection more is one active open more, and what rests has no row.
func TestDelta(t *testing.T) {
	s := source(t)
	take(t, s)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	totals, deltas := take(t, s)
	if deltas["TcpActiveOpens"] < 1 || deltas["TcpPassiveOpens"] < 1 || totals["TcpActiveOpens"] < deltas["TcpActiveOpens"] {
		t.Errorf("opens %d and %d", deltas["TcpActiveOpens"], deltas["TcpPassiveOpens"])
	}
	if _, moved := totals["TcpMaxConn"]; moved {
		t.Error("TcpMaxConn has a row")
	}
}

func TestNumber(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "-1": -1, "9223372036854775807": 1<<63 - 1, "18446744073709551615": -1} {
		if got, err := number([]byte(text)); got != want || err != nil {
			t.Errorf("%s is %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "x", "1x", "99999999999999999999"} {
		if got, err := number([]byte(text)); err == nil {
			t.Errorf("%q is %d", text, got)
		}
	}
}

func FuzzSample(f *testing.F) {
	f.Add([]byte("Tcp: A B\nTcp: 1 -2\n"), true)
	f.Add([]byte("Ip6InReceives   \t 5\n"), false)
	f.Fuzz(func(t *testing.T, b []byte, pairs bool) {
		clock, err := sample.NewClock()
		if err != nil {
			t.Fatal(err)
		}
		(&file{pairs: pairs}).sample(b, sample.NewRows(clock), nil, time.Now(), 0)
	})
}

func BenchmarkSample(b *testing.B) {
	s := source(b)
	clock, err := sample.NewClock()
	if err != nil {
		b.Fatal(err)
	}
	rows := sample.NewRows(clock)
	b.ReportAllocs()
	for b.Loop() {
		rows.Reset()
		if err := s.Sample(rows); err != nil {
			b.Fatal(err)
		}
	}
}
