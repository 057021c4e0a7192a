package snmp

import (
	"encoding/json"
	"maps"
	"net"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"dumbbell/collectors/clock"
	"dumbbell/collectors/row"
)

var rowPattern = regexp.MustCompile(`snmp,name=(\w+) total=(-?\d+)i,(?:delta=(-?\d+)i,interval_ns=\d+i,)?mono_ns=`)

func take(t testing.TB, s *Source) (totals, deltas map[string]int64) {
	t.Helper()
	clock, err := clock.New()
	if err != nil {
		t.Fatal(err)
	}
	rows := row.NewRows(clock)
	if err := s.Sample(rows); err != nil {
		t.Fatal(err)
	}
	totals, deltas = make(map[string]int64), make(map[string]int64)
	for _, m := range rowPattern.FindAllSubmatch(rows.Bytes(), -1) {
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
		clock, err := clock.New()
		if err != nil {
			t.Fatal(err)
		}
		(&file{pairs: pairs}).sample(b, row.NewRows(clock), nil, time.Now())
	})
}

func BenchmarkSample(b *testing.B) {
	s := source(b)
	clock, err := clock.New()
	if err != nil {
		b.Fatal(err)
	}
	rows := row.NewRows(clock)
	b.ReportAllocs()
	for b.Loop() {
		rows.Reset()
		if err := s.Sample(rows); err != nil {
			b.Fatal(err)
		}
	}
}

// TestNewLines: the kernel shows counters of ICMP messages from the first
// message of a type on, before others. Those count from 0, and cost the others
// nothing.
func TestNewLines(t *testing.T) {
	clock, err := clock.New()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		pairs         bool
		before, after string
		want          map[string]string // total and delta; of one that rested nothing
	}{
		"snmp6": {
			false,
			"Ip6InReceives \t7\nIcmp6InMsgs \t1\nUdp6InDatagrams \t4\nUdp6NoPorts \t0\n",
			"Ip6InReceives \t9\nIcmp6InMsgs \t2\nIcmp6InType135 \t1\nIcmp6InType136 \t0\nUdp6InDatagrams \t14\nUdp6NoPorts \t0\n",
			map[string]string{"Ip6InReceives": "9 2", "Icmp6InMsgs": "2 1", "Icmp6InType135": "1 1", "Udp6InDatagrams": "14 10"},
		},
		"a type more": {
			true,
			"Icmp: InMsgs\nIcmp: 5\nIcmpMsg: InType3 OutType3\nIcmpMsg: 5 5\nUdp: InDatagrams\nUdp: 4\n",
			"Icmp: InMsgs\nIcmp: 6\nIcmpMsg: InType3 InType8 OutType3\nIcmpMsg: 6 1 5\nUdp: InDatagrams\nUdp: 5\n",
			map[string]string{"IcmpInMsgs": "6 1", "IcmpMsgInType3": "6 1", "IcmpMsgInType8": "1 1", "UdpInDatagrams": "5 1"},
		},
		"a line more": {
			true,
			"Icmp: InMsgs\nIcmp: 0\nUdp: InDatagrams NoPorts\nUdp: 4 9\n",
			"Icmp: InMsgs\nIcmp: 2\nIcmpMsg: InType3\nIcmpMsg: 2\nUdp: InDatagrams NoPorts\nUdp: 5 9\n",
			map[string]string{"IcmpInMsgs": "2 2", "IcmpMsgInType3": "2 2", "UdpInDatagrams": "5 1"},
		},
		"a line less, names moved": {
			true,
			"A: X Y\nA: 1 2\nB: Z\nB: 3\nC: V W\nC: 4 5\n",
			"A: X Y\nA: 1 2\nC: W V\nC: 6 4\n",
			map[string]string{"CW": "6 1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &file{pairs: test.pairs}
			began := time.Now()
			rows := row.NewRows(clock)
			if err := f.sample([]byte(test.before), rows, nil, began); err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(rows.Bytes()), "total="); strings.Contains(string(rows.Bytes()), "delta=") || n < 3 {
				t.Errorf("first: %s", rows.Bytes())
			}
			for range 2 { // then all rest
				rows.Reset()
				began = began.Add(time.Second)
				if err := f.sample([]byte(test.after), rows, nil, began); err != nil {
					t.Fatal(err)
				}
				got := make(map[string]string)
				for _, m := range regexp.MustCompile(`snmp,name=(\w+) total=(\d+)i,delta=(\d+)i,interval_ns=1000000000i`).FindAllStringSubmatch(string(rows.Bytes()), -1) {
					got[m[1]] = m[2] + " " + m[3]
				}
				if !maps.Equal(got, test.want) || rows.Len() != len(test.want) {
					t.Errorf("%v, want %v: %s", got, test.want, rows.Bytes())
				}
				test.want = nil
			}
		})
	}
}

// TestUnreadable: a reading that fails in the middle makes no difference out of what is read later.
func TestUnreadable(t *testing.T) {
	clock, err := clock.New()
	if err != nil {
		t.Fatal(err)
	}
	f, rows := &file{}, row.NewRows(clock)
	began := time.Now()
	if err := f.sample([]byte("A 1\nB x\nC 3\n"), rows, nil, began); err == nil {
		t.Fatal("no error")
	}
	rows.Reset()
	if err := f.sample([]byte("A 1\nB 2\nC 3\n"), rows, nil, began.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if text := string(rows.Bytes()); strings.Contains(text, "delta=") || !strings.Contains(text, "name=B total=2i") || !strings.Contains(text, "name=C total=3i") {
		t.Error(text)
	}
	rows.Reset()
	if err := f.sample([]byte("A 1\nB 2\nC x\n"), rows, nil, began.Add(2*time.Second)); err == nil {
		t.Fatal("no error")
	}
	rows.Reset()
	if err := f.sample([]byte("A 1\nB 2\nC 9\n"), rows, nil, began.Add(3*time.Second)); err != nil {
		t.Fatal(err)
	}
	if want := "snmp,name=C total=9i,delta=6i,interval_ns=2000000000i,"; !strings.HasPrefix(string(rows.Bytes()), want) {
		t.Errorf("%s, want %s", rows.Bytes(), want)
	}
}
