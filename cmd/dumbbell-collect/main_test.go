package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"dumbbell/collectors/ebpf"
	"dumbbell/collectors/spool"
	"dumbbell/collectors/tcpinfo"
	"dumbbell/collectors/trace"
)

// connection returns both ends of a connection as --tuple wants it, and its
// port. A byte a millisecond goes over it.
func connection(t *testing.T) (tuple string, port int) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	go io.Copy(io.Discard, s)
	go func() {
		for range time.Tick(time.Millisecond) {
			if _, err := c.Write([]byte("x")); err != nil {
				return // closed
			}
		}
	}()
	return c.LocalAddr().String() + "," + c.RemoteAddr().String(), l.Addr().(*net.TCPAddr).Port
}

func TestLines(t *testing.T) {
	tuple, port := connection(t)
	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"tuple":  {[]string{"tcp", "--tuple", tuple, "--tag", "site=here"}, []string{"tcp_info,flow=0,", "site=here", "snd_cwnd="}},
		"port":   {[]string{"tcp", "--port", fmt.Sprint(port)}, []string{"slot=0", "slot=1", fmt.Sprintf("local=\"127.0.0.1:%d\"", port)}},
		"others": {[]string{"qdisc,link,snmp,cpu,clock", "--chrony", "127.0.0.1:1"}, []string{"link,dev=lo", "snmp,", "name=TcpActiveOpens total=", "cpu_core,cpu=0", "clock,"}},
		"web100": {[]string{"web100", "--tuple", tuple}, []string{"web100,flow=0", "CurMSS="}},
		"ebpf":   {[]string{"ebpf", "--port", fmt.Sprint(port)}, []string{"slot=0", "slot=1", "snd_cwnd=", "dup_acks_in="}},
		"table":  {[]string{"tcp", "--port", fmt.Sprint(port), "--format", "table"}, []string{"retrans", "Open", fmt.Sprintf("->127.0.0.1:%d ", port)}},
	} {
		t.Run(name, func(t *testing.T) {
			var out, report bytes.Buffer
			err := run(append(test.args, "--interval", "10ms", "--duration", "50ms"), &out, &report)
			if errors.Is(err, ebpf.ErrUnavailable) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range test.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in %.2000s", want, out.String())
				}
			}
			if !strings.Contains(report.String(), "of 5 samples taken") {
				t.Errorf("report %q", report.String())
			}
		})
	}
}

// lines tells, once, when a row has come.
type lines struct {
	bytes.Buffer
	first chan struct{}
}

func (l *lines) Write(b []byte) (int, error) {
	if l.Len() == 0 && len(b) > 0 {
		close(l.first)
	}
	return l.Buffer.Write(b)
}

// TestLastInterval: what happens after the last sample is told too, whether the
// time is over or a signal has come.
func TestLastInterval(t *testing.T) {
	for name, args := range map[string][]string{
		"time":           {"tcp", "--interval", "10s", "--duration", "5s"},
		"signal":         {"tcp", "--interval", "1h"},
		"ports":          {"tcp", "--interval", "1h"},
		"eBPF":           {"ebpf", "--interval", "1h"},
		"trace, signal":  {"trace", "--interval", "1h"},
		"counters":       {"snmp", "--interval", "1h"},
		"counters, time": {"snmp", "--interval", "10s", "--duration", "5s"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp4", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			client, err := net.Dial("tcp4", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			server, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			local := client.LocalAddr().(*net.TCPAddr).AddrPort()
			// The kernel tells the oldest listener last.
			ends, err := tcpinfo.DialDestroyed(func(s *tcpinfo.Sample) bool { return s.Tuple.Local == local || s.Tuple.Remote == local })
			if err != nil {
				t.Fatal(err)
			}
			defer ends.Close()
			switch {
			case name == "ports":
				args = append(args, "--port", fmt.Sprint(l.Addr().(*net.TCPAddr).Port))
			case args[0] != "snmp":
				args = append(args, "--tuple", client.LocalAddr().String()+","+client.RemoteAddr().String())
			}
			out, began := &lines{first: make(chan struct{})}, time.Now()
			done := make(chan error)
			go func() { done <- run(args, out, io.Discard) }()
			select {
			case <-out.first:
			case err := <-done:
				if errors.Is(err, ebpf.ErrUnavailable) || errors.Is(err, trace.ErrUnavailable) {
					t.Skip(err)
				}
				t.Fatal("it ended without a row: ", err)
			}
			if _, err := client.Write(make([]byte, 54321)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(server, make([]byte, 54321)); err != nil {
				t.Fatal(err)
			}
			client.Close()
			server.Close()
			for told := 0; told < 2; told += len(ends.Take()) { // the kernel does so a little later
				time.Sleep(time.Millisecond)
			}
			if !slices.Contains(args, "--duration") {
				if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if slices.Contains(args, "--duration") && time.Since(began) < 5*time.Second {
				t.Errorf("it ended after %v", time.Since(began))
			}
			want := map[string][]string{
				"tcp": {"bytes_sent=54321i,", "final=true"}, "ebpf": {"bytes_sent=54321i,", "segs_seen=", "final=true"},
				"trace": {"tcp_probe,", "snd_una="}, "snmp": {"TcpActiveOpens total=", "TcpOutSegs total=", "delta="},
			}
			for _, text := range want[args[0]] {
				if !strings.Contains(out.String(), text) {
					t.Errorf("no %q in %.3000s", text, out.String())
				}
			}
		})
	}
}

func TestSpool(t *testing.T) {
	tuple, _ := connection(t)
	path := filepath.Join(t.TempDir(), "x.lp")
	for range 2 { // the second goes on where the first ended
		if err := run([]string{"tcp", "--tuple", tuple, "--interval", "5ms", "--duration", "50ms", "--spool", path}, io.Discard, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if done, err := spool.Scan(f, 1); err != nil || done.Batch != 2 || done.Rows < 10 {
		t.Errorf("%+v, %v", done, err)
	}
}

func TestMistakes(t *testing.T) {
	for want, args := range map[string][]string{
		"no source":   {"everything"},
		"below 1ms":   {"tcp", "--interval", "10us"},
		"is not a":    {"tcp", "qdisc"},
		"needs a":     {"trace"},
		"looking for": {"tcp", "--cgroup", "/nowhere"},
	} {
		if err := run(args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v does not say %q", args, err, want)
		}
	}
}
