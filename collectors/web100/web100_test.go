package web100

import (
	"encoding/binary"
	"flag"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"dumbbell/collectors/clock"
	"dumbbell/collectors/row"
	"dumbbell/collectors/tcpinfo"
)

var write = flag.Bool("write", false, "write docs/variables.md")

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestDocumentation: docs/variables.md has the table that the code follows.
func TestDocumentation(t *testing.T) {
	const path = "../../docs/variables.md"
	b, err := os.ReadFile(path)
	check(t, err)
	head, _, ok := strings.Cut(string(b), "| variable |")
	if !ok {
		t.Fatal("docs/variables.md has no table")
	}
	want := head + Markdown()
	if *write {
		check(t, os.WriteFile(path, []byte(want), 0o644))
	} else if string(b) != want {
		t.Error("docs/variables.md is out of date: go test ./collectors/web100 -write")
	}
}

func TestGrades(t *testing.T) {
	has := func(have ...Capability) func(Capability) bool {
		return func(c Capability) bool {
			for _, h := range have {
				if h == c {
					return true
				}
			}
			return false
		}
	}
	for _, test := range []struct {
		name string
		has  func(Capability) bool
		want Grade
	}{
		{"CongestionSignals", has(Info), Approximate},
		{"CongestionSignals", has(Info, Trace), Approximate},
		{"CongestionSignals", has(Info, Trace, EBPF), Exact},
		{"Timeouts", has(Info), Unavailable},
		{"Timeouts", has(Info, Info67), Exact},
		{"DupAcksIn", has(Info, Info67, Counter), Unavailable},
		{"DupAcksIn", has(Info, Trace), Approximate},
		{"DupAcksIn", has(Info, EBPF), Exact},
		{"SendStall", has(Info, EBPF), Approximate},
		{"SendStall", has(Info, EBPF, Verdict), Exact},
		{"FastRetran", has(Info, Trace), Exact},
		{"FastRetran", has(Info), Unavailable},
		{"SegsOut", has(Info), Exact},
	} {
		for i := range Variables {
			if Variables[i].Name == test.name {
				if got, _ := Variables[i].Grade(test.has); got != test.want {
					t.Errorf("%s is %v, want %v", test.name, got, test.want)
				}
			}
		}
	}
	seen := make(map[string]bool)
	for _, v := range Variables {
		if seen[v.Name] {
			t.Errorf("%s occurs twice", v.Name)
		}
		seen[v.Name] = true
	}
}

func set(info []byte, name string, v uint64) {
	switch f := tcpinfo.FieldByName(name); f.Width {
	case 1:
		info[f.Offset] = byte(v)
	case 2:
		binary.NativeEndian.PutUint16(info[f.Offset:], uint16(v))
	case 4:
		binary.NativeEndian.PutUint32(info[f.Offset:], uint32(v))
	case 8:
		binary.NativeEndian.PutUint64(info[f.Offset:], v)
	}
}

func fields(t *testing.T, c *Connection) string {
	t.Helper()
	clock, err := clock.New()
	check(t, err)
	rows := row.NewRows(clock)
	series := NewSeries(nil)
	c.Write(rows, &series)
	return string(rows.Bytes())
}

// TestHistory: what only a history tells, on a kernel without total_rto.
func TestHistory(t *testing.T) {
	var c Connection
	now := time.Now()
	for i, step := range []struct{ cwnd, caState, busy uint64 }{
		{10, 0, 1000}, {20, 0, 2000}, {15, 0, 2000}, {10, 3, 2000}, {10, 3, 2000}, {12, 0, 2000}, {5, 4, 2000},
	} {
		info := make([]byte, 232)
		set(info, "snd_mss", 1000)
		set(info, "snd_ssthresh", 1<<31-1)
		set(info, "snd_cwnd", step.cwnd)
		set(info, "ca_state", step.caState)
		set(info, "busy_time_us", step.busy)
		set(info, "sndbuf_limited_us", 7)
		c.Observe(&tcpinfo.Sample{Info: info, Time: now.Add(time.Duration(i) * time.Millisecond)})
	}
	got := fields(t, &c)
	for _, want := range []string{"CurCwnd=5000i", "MaxCwnd=20000i", "CongestionSignals=2i", "OtherReductions=1i", "SndLimTimeSnd=5007i", "SndLimTimeCwnd=1993i"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
	for _, absent := range []string{"Timeouts=", "CurRwinSent=", "DupAcksIn=", "CurSsthresh=", "SendStall=", "MaxRTT="} {
		if strings.Contains(got, absent) {
			t.Errorf("%s has a value that nobody measured: %s", absent, got)
		}
	}
}

// observe shows a connection a sample that is so far from a time.
func observe(c *Connection, at time.Time, values map[string]uint64) {
	info := make([]byte, 232)
	for name, v := range values {
		set(info, name, v)
	}
	c.Observe(&tcpinfo.Sample{Info: info, Time: at})
}

// TestHold: what a connection waits before its flow starts limits nothing,
// and what its application waits after that does.
func TestHold(t *testing.T) {
	var c Connection
	start := time.Now()
	c.StartAt(start)
	for _, step := range []struct {
		at   time.Duration
		busy uint64
	}{
		{-3850 * time.Millisecond, 200}, {-50 * time.Millisecond, 200}, // the handshake of the application
		{50 * time.Millisecond, 50_200}, {time.Second, 900_200},
	} {
		observe(&c, start.Add(step.at), map[string]uint64{"busy_time_us": step.busy})
	}
	if got := fields(t, &c); !strings.Contains(got, "SndLimTimeSnd=100000i") {
		t.Errorf("not SndLimTimeSnd=100000i: %s", got)
	}
}

// TestEndMissed: totals up to the last sample are not those of the connection.
func TestEndMissed(t *testing.T) {
	var c Connection
	observe(&c, time.Now(), map[string]uint64{"segs_out": 100, "snd_mss": 1000})
	if got := fields(t, &c); !regexp.MustCompile(`(?m)^web100,grade=exact .*SegsOut=100i`).MatchString(got) {
		t.Error(got)
	}
	c.EndMissed()
	if got := fields(t, &c); strings.Contains(got, "grade=exact") || !regexp.MustCompile(`(?m)^web100,grade=approximate .*SegsOut=100i`).MatchString(got) {
		t.Error(got)
	}
}

// TestConnection: a real one's bytes are there under web100's names.
func TestConnection(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	client, err := net.Dial("tcp4", l.Addr().String())
	check(t, err)
	defer client.Close()
	server, err := l.Accept()
	check(t, err)
	defer server.Close()
	go client.Write(make([]byte, 123456))
	_, err = io.CopyN(io.Discard, server, 123456)
	check(t, err)
	address := func(a net.Addr) string { return a.String() }
	tuple, err := tcpinfo.ParseTuple(address(server.LocalAddr()) + "," + address(server.RemoteAddr()))
	check(t, err)
	s, err := NewSource([]tcpinfo.Flow{{Tuple: tuple}}, nil)
	check(t, err)
	defer s.Close()
	clock, err := clock.New()
	check(t, err)
	rows := row.NewRows(clock)
	check(t, s.Sample(rows))
	if got := string(rows.Bytes()); !regexp.MustCompile(`(?m)^web100,grade=exact .*ThruOctetsReceived=123456i`).MatchString(got) {
		t.Error(got)
	}
}
