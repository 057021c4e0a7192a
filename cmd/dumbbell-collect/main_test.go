package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dumbbell/collectors/ebpf"
	"dumbbell/collectors/spool"
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
