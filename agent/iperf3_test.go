package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"dumbbell/agent/kind"
	"dumbbell/agent/phase"
	"dumbbell/agent/plan"
	"dumbbell/agent/sampler"
	"dumbbell/collectors/spool"

	"github.com/influxdata/line-protocol/v2/lineprotocol"
)

func needIperf3(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("iperf3"); err != nil {
		t.Skip("iperf3 is not installed: apt-get install iperf3")
	}
}

func TestRunTCP(t *testing.T) {
	for _, streams := range []int{1, 3} {
		t.Run(fmt.Sprint(streams, " streams"), func(t *testing.T) {
			t.Parallel()
			needIperf3(t)
			p := loopbackPlan(t)
			p.Flows[0].Streams = streams
			p.Flows[0].ClientPort = freePorts(t, uint16(streams))
			connect := -500 * time.Millisecond
			p.Flows[0].Connect = &connect
			a := startAgent(t, p)
			t0 := a.start()
			a.end("done", 0)
			if s := a.status(); !strings.HasPrefix(s.Iperf3, "iperf 3") {
				t.Errorf("iperf3 version %q", s.Iperf3)
			}
			if launched := a.events("flow_launched"); len(launched) != 2 {
				t.Errorf("launched %+v", launched)
			}
			held := a.one("flow_held")
			if !held.Held || held.Sent != kind.CookieBytes || held.UnixNs < t0+int64(connect) || held.UnixNs >= t0 {
				t.Errorf("held %+v, t0 is %d", held, t0)
			}
			for _, name := range []string{"flow_released", "flow_first_data"} {
				e := a.one(name)
				if e.Error == nil {
					t.Fatalf("%s without an error: %+v", name, e)
				}
				t.Logf("%s %v after the planned time", name, time.Duration(*e.Error))
				// The upper bound is generous: tests share a machine.
				if e.Planned != t0 || *e.Error < 0 || *e.Error > 200e6 {
					t.Errorf("%s: planned %d, error %d ns, want %d and 0 to 200 ms", name, e.Planned, *e.Error, t0)
				}
			}
			if e := a.one("flow_congestion_control"); e.Name != "cubic" {
				t.Errorf("congestion control %q", e.Name)
			}
			told := a.one("sampler")
			ticks := int((sampler.Lead(p) + p.Duration + p.SamplingInterval/2) / p.SamplingInterval)
			if told.Ticks != ticks || told.Sampled+told.Missed != ticks || told.Sampled < ticks/2 || told.Median < 15e6 || told.Median > 40e6 {
				t.Errorf("sampler %+v", told)
			}
			checkSpool(t, a, t0, streams)
			for _, side := range []string{"client", "server"} {
				b, err := os.ReadFile(filepath.Join(a.dir, "iperf3-flow1-"+side+".json"))
				var report struct {
					End struct {
						Sent struct{ Bytes int64 } `json:"sum_sent"`
						Recv struct{ Bytes int64 } `json:"sum_received"`
					}
				}
				if err != nil || json.Unmarshal(b, &report) != nil || report.End.Recv.Bytes == 0 {
					t.Errorf("%s: %v: %s", side, err, b)
				}
			}
		})
	}
}

// checkSpool checks that every end of every stream was sampled, when it was,
// and that what one side sent the other received.
func checkSpool(t *testing.T, a *agent, t0 int64, streams int) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(a.dir, "spool.lp"))
	if err != nil {
		t.Fatal(err)
	}
	if done, err := spool.Scan(bytes.NewReader(b), 1); err != nil || done.Bytes != int64(len(b)) {
		t.Fatalf("spool: %+v, %v", done, err)
	}
	rows := make(map[string]int)
	most := make(map[string]int64)
	finals, counted := make(map[string]int), make(map[string]int)
	d := lineprotocol.NewDecoderWithBytes(b)
	for d.Next() {
		measurement, err := d.Measurement()
		if err != nil {
			t.Fatal(err)
		}
		tags := make(map[string]string)
		for {
			k, v, err := d.NextTag()
			if err != nil {
				t.Fatal(err)
			}
			if k == nil {
				break
			}
			tags[string(k)] = string(v)
		}
		if tags["run"] != "run" || tags["point"] != "point" || tags["phase"] != "measurement" || tags["host"] != "here" {
			t.Fatalf("tags %v", tags)
		}
		key := string(measurement) + " " + tags["side"] + " " + tags["stream"]
		rows[key]++
		mono, isFinal, limited := false, false, int64(0)
		for {
			k, v, err := d.NextField()
			if err != nil {
				t.Fatal(err)
			}
			if k == nil {
				break
			}
			if name := string(k); name == "bytes_acked" && tags["side"] == "sender" || name == "bytes_received" && tags["side"] == "receiver" {
				most[key] = max(most[key], v.IntV())
			}
			if string(k) == "SndLimTimeSnd" {
				limited = v.IntV() * int64(time.Microsecond)
			}
			mono = mono || string(k) == "mono_ns"
			isFinal = isFinal || string(k) == "final"
			if string(k) == "dup_acks_in" {
				counted[key]++
			}
		}
		stamp, err := d.Time(lineprotocol.Nanosecond, time.Time{})
		end := t0 + int64(3*time.Second)
		if isFinal {
			finals[key]++
			end += int64(phase.GracePeriod) // connections are closed after the last tick
		}
		begin := t0 - int64(2010*time.Millisecond)
		if strings.HasPrefix(key, "tcp_probe") || strings.HasPrefix(key, "tcp_event") {
			begin = t0 - int64(kind.LaunchLead) // a held client has connected
			end += int64(phase.GracePeriod)
		}
		if strings.HasPrefix(key, "trace") || strings.HasPrefix(key, "web100") {
			end += int64(phase.GracePeriod)
		}
		if err != nil || !mono || stamp.UnixNano() < begin || stamp.UnixNano() > end {
			t.Fatalf("stamp %v (t0 %v), mono_ns %v, error %v", stamp, time.Unix(0, t0), mono, err)
		}
		if most := stamp.UnixNano() - t0 + int64(20*time.Millisecond); limited > max(0, most) { // a few jiffies
			t.Errorf("%s: SndLimTimeSnd is %v, more than the %v since the flow's start", key, time.Duration(limited), time.Duration(most))
		}
	}
	if !regexp.MustCompile(`(?m)^web100,.*grade=exact.*side=sender.*[ ,]SegsOut=\d`).Match(b) {
		t.Error("no exact totals of a sender whose end was seen")
	}
	want := []string{"qdisc  ", "link  ", "snmp  ", "cpu_core  ", "clock  ", "sampler  ", "web100 sender 0", "web100 receiver 0"}
	if canTrace() {
		if !regexp.MustCompile(`(?m)^web100,.*side=sender.*[ ,]SlowStart=\d`).Match(b) || a.one("trace").Records == 0 || a.one("trace").Lost != 0 {
			t.Error("the trace is not counted, or not whole")
		}
		want = append(want, "tcp_probe sender 0", "tcp_probe receiver 0", "tcp_event sender 0", "trace  ")
	}
	for _, key := range want {
		if rows[key] == 0 && key != "qdisc  " { // this machine may have none
			t.Errorf("no row of %s: %v", key, rows)
		}
	}
	for stream := range streams {
		for _, side := range []string{"sender", "receiver"} {
			key := fmt.Sprintf("tcp_info %s %d", side, stream)
			if rows[key] < 20 || most[key] < 500_000 {
				t.Errorf("%s: %d rows up to %d bytes", key, rows[key], most[key])
			}
			if finals[key] != 1 {
				t.Errorf("%s: %d final rows", key, finals[key])
			}
			// Without eBPF there are no counters instead of zeros, and it is said why.
			missing := slices.ContainsFunc(a.events("collector_unavailable"), func(e event) bool { return e.Name == "ebpf" && e.Reason != "" })
			if (counted[key] == 0) != missing || !missing && counted[key] < rows[key]/2 {
				t.Errorf("%s: counters in %d of %d rows, said to be missing: %v", key, counted[key], rows[key], missing)
			}
		}
	}
}

// TestOptions reads the options of an iperf3 test back from its report.
func TestOptions(t *testing.T) {
	t.Parallel()
	needIperf3(t)
	p := loopbackPlan(t)
	pacing, mss, buffer, dscp := int64(40e6), 1400, int64(65536), 46
	f := &p.Flows[0]
	f.Options, f.RateBps = plan.Options{PacingBps: &pacing, MSS: &mss, SocketBuffer: &buffer, DSCP: &dscp}, nil
	a := startAgent(t, p)
	a.start()
	a.end("done", 0)
	b, err := os.ReadFile(filepath.Join(a.dir, "iperf3-flow1-client.json"))
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Start struct {
			MSS    int   `json:"tcp_mss"`
			Buffer int64 `json:"sock_bufsize"`
			Test   struct {
				TOS int `json:"tos"`
			} `json:"test_start"`
		} `json:"start"`
		End struct {
			Sent struct {
				Bytes int64 `json:"bytes"`
			} `json:"sum_sent"`
		} `json:"end"`
	}
	if err := json.Unmarshal(b, &report); err != nil {
		t.Fatal(err)
	}
	if s := report.Start; s.MSS != mss || s.Buffer != buffer || s.Test.TOS != dscp<<2 {
		t.Errorf("report says %+v", s)
	}
	// 40 Mbit/s for a second are 5 MB, and what the buffers take at once.
	if s := report.End.Sent; s.Bytes > 6e6 || s.Bytes < 1e6 {
		t.Errorf("sent %+v", s)
	}
}

func TestRunUDP(t *testing.T) {
	t.Parallel()
	needIperf3(t)
	p := loopbackPlan(t)
	f := &p.Flows[0]
	f.Kind, f.CongestionControl = "iperf3_udp", nil
	own := p.Own()
	own.Sample.TCP = nil
	p.Hosts["here"] = own
	a := startAgent(t, p)
	a.start()
	a.end("done", 0)
	onTime := []string{"flow_released", "flow_first_data"}
	if held := a.one("flow_held"); !held.Held {
		if !strings.Contains(held.Reason, "udp_diag") {
			t.Errorf("not held: %+v", held)
		}
		onTime = onTime[1:]
	}
	for _, name := range onTime {
		if e := a.one(name); e.Error == nil || *e.Error < 0 || *e.Error > 200e6 {
			t.Errorf("%s %+v", name, e)
		}
	}
}

// TestLostGreeting has a server of iperf3 that never answers over UDP.
func TestLostGreeting(t *testing.T) {
	t.Parallel()
	needIperf3(t)
	p := loopbackPlan(t)
	f := &p.Flows[0]
	connect := -300 * time.Millisecond
	f.Kind, f.CongestionControl, f.Connect = "iperf3_udp", nil, &connect
	own := p.Own()
	own.Sample.TCP, own.Actions = nil, own.Actions[1:]
	p.Hosts["here"] = own
	server, err := net.Listen("tcp", netip.AddrPortFrom(f.Dst, f.ServerPort).String())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	silent, err := net.ListenPacket("udp", server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	greeted := make(chan time.Time, 1)
	go func() {
		if _, _, err := silent.ReadFrom(make([]byte, 100)); err == nil {
			greeted <- time.Now()
		}
	}()
	go func() {
		conn, err := server.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		const paramExchange, createStreams = 9, 10 // iperf_api.h
		io.ReadFull(conn, make([]byte, kind.CookieBytes))
		conn.Write([]byte{paramExchange})
		length := make([]byte, 4)
		io.ReadFull(conn, length)
		io.ReadFull(conn, make([]byte, binary.BigEndian.Uint32(length)))
		conn.Write([]byte{createStreams})
		io.Copy(io.Discard, conn)
	}()
	a := startAgent(t, p)
	t0 := a.start()
	a.end("failed", 1, "iperf3_client flow1: iperf3 begins with one datagram, which it sends once")
	held := a.one("flow_held")
	if !strings.Contains(held.Reason, "udp_diag") && (held.Held || !strings.Contains(held.Reason, "was lost on the path")) {
		t.Errorf("%+v", held)
	}
	if at := (<-greeted).UnixNano(); at < t0+int64(connect) || at > t0 {
		t.Errorf("the greeting left %v after the start, planned %v", time.Duration(at-t0), connect)
	}
}

func TestNoServer(t *testing.T) {
	t.Parallel()
	needIperf3(t)
	p := loopbackPlan(t)
	own := p.Own()
	own.Actions = own.Actions[1:]
	p.Hosts["here"] = own
	a := startAgent(t, p)
	a.start()
	a.end("failed", 1, "iperf3_client flow1", "refused")
	if e := a.one("process_exit"); e.Action != "iperf3_client" || !strings.Contains(e.Stderr, "refused") {
		t.Errorf("process_exit %+v", e)
	}
	if held := a.one("flow_held"); held.Held {
		t.Errorf("held %+v", held)
	}
}
