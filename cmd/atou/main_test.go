package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/influxdata/line-protocol/v2/lineprotocol"
	"golang.org/x/sys/unix"
)

// soon is how long a test waits for what has to come.
const soon = 20 * time.Second

// TestMain lets the test's program be atou, so that tests run it as users do.
func TestMain(m *testing.M) {
	if os.Getenv("BE_ATOU") != "" {
		main()
	}
	os.Exit(m.Run())
}

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), "BE_ATOU=1")
	return c
}

// run runs atou to its end.
func runs(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	c := command(t, args...)
	var out, report bytes.Buffer
	c.Stdout, c.Stderr = &out, &report
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(soon, func() { c.Process.Kill() })
	defer timer.Stop()
	c.Wait()
	return c.ProcessState.ExitCode(), out.String(), report.String()
}

// A place has the files of a pair of ends.
type place struct {
	dir, token string
	port       int
}

func newPlace(t *testing.T) place {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p := place{dir: t.TempDir(), port: conn.LocalAddr().(*net.UDPAddr).Port}
	p.token = p.write(t, "token", "0123456789abcdef0123456789abcdef\n")
	return p
}

func (p place) path(name string) string { return filepath.Join(p.dir, name) }

func (p place) write(t *testing.T, name, content string) string {
	t.Helper()
	if err := os.WriteFile(p.path(name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return p.path(name)
}

// sender writes a sender's configuration with some lines of its own.
func (p place) sender(t *testing.T, lines string) string {
	t.Helper()
	return p.write(t, "sender.conf", fmt.Sprintf("host 127.0.0.1\nport %d\nsndbuf 4000000\nrcvbuf 16000000\n%s", p.port, lines))
}

// A served is a receiver that runs.
type served struct {
	cmd    *exec.Cmd
	stdout *bufio.Reader
	stderr *bytes.Buffer
}

func (p place) serve(t *testing.T, lines string) *served {
	t.Helper()
	config := p.write(t, "receiver.conf", fmt.Sprintf("port %d\nrcvbuf 16000000\n%s", p.port, lines))
	s := &served{cmd: command(t, "serve", "--token-file", p.token, "--listen", "127.0.0.1", "--ready", p.path("ready"), config), stderr: new(bytes.Buffer)}
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.stdout = bufio.NewReader(stdout)
	s.cmd.Stderr = s.stderr
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.cmd.Process.Kill(); s.cmd.Wait() })
	if ready, want := p.await(t, "ready", 1), fmt.Sprintf("127.0.0.1:%d\n", p.port); ready != want {
		t.Fatalf("ready at %q, want %q", ready, want)
	}
	return s
}

// await awaits so many lines in a file.
func (p place) await(t *testing.T, name string, lines int) string {
	t.Helper()
	for deadline := time.Now().Add(soon); ; time.Sleep(10 * time.Millisecond) {
		if b, err := os.ReadFile(p.path(name)); err == nil && bytes.Count(b, []byte("\n")) >= lines {
			return string(b)
		}
		if time.Now().After(deadline) {
			t.Fatalf("there are no %d lines in %s", lines, name)
		}
	}
}

// end tells the receiver to end, and what it left unread.
func (s *served) end(t *testing.T) string {
	t.Helper()
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(s.stdout)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, s.stderr)
	}
	return string(rest)
}

func TestTransfer(t *testing.T) {
	for _, mode := range []string{"precise", "bulk"} {
		t.Run(mode, func(t *testing.T) {
			p := newPlace(t)
			server := p.serve(t, "sack 1\n")
			code, stdout, stderr := runs(t, "send", "--token-file", p.token, "--mode", mode, "--bind", "127.0.0.1",
				"--trace", p.path("trace"), "--trace-kinds", "--samples", p.path("samples"), "--interval", "1ms", "--tag", "site=here", "--json", p.path("json"),
				p.sender(t, "debug 4\nsack 1\nmaxpkts 5000\ntimeout 0.2\ntick 0\ndroplist 1000,1001,4999\n"))
			if code != 0 {
				t.Fatalf("%d: %s", code, stderr)
			}
			var s summary
			b, err := os.ReadFile(p.path("json"))
			if err == nil {
				err = json.Unmarshal(b, &s)
			}
			if err != nil || s.SndUna != 5000 || s.Rxmts < 3 || s.PktsOut != 5000+s.Rxmts || s.Timeouts != 1 || s.Mode != mode || s.GoodBytes != 5000*1460 {
				t.Errorf("%v in %s", err, b)
			}
			if r := s.ReceiverStats; r == nil || r.Received != 5000 || r.Missing < 2 {
				t.Errorf("the receiver's report is %+v", r)
			}

			// The summary has the same numbers; it has the form of the original's.
			golden, err := os.ReadFile("../../transports/atou/record/testdata/summary.txt")
			if err != nil {
				t.Fatal(err)
			}
			if got, want := shape(stdout), shape(string(golden)); got != want {
				t.Errorf("the summary's form is\n%s, the original's\n%s", got, want)
			}
			for _, want := range []string{
				fmt.Sprintf("rxmts %d dup3s %d packs %d timeouts 1 ", s.Rxmts, s.Dup3s, s.Packs),
				"sack 1 delack 0 maxpkts 5000", fmt.Sprintf("pkts in %d out %d ", s.PktsIn, s.PktsOut), "snd_una 5000",
			} {
				if !strings.Contains(stdout, want) {
					t.Errorf("no %q in\n%s", want, stdout)
				}
			}

			// A line of the trace for each of them.
			kinds := map[string]uint64{}
			for _, line := range lines(t, p.path("trace")) {
				words := strings.Fields(line)
				if n := len(words); n != 3 && !(n == 6 && words[5] == "ack") {
					t.Fatalf("%q", line)
				}
				kinds[words[len(words)-1]]++
			}
			if kinds["xmt"] != 4997 || kinds["drop"] != 3 || kinds["rxt"] != s.Rxmts || kinds["ack"] != s.PktsIn-s.BadAcks {
				t.Errorf("the trace has %v", kinds)
			}
			events := map[string]uint64{}
			for line := range strings.Lines(stderr) {
				events[strings.Fields(line)[0]]++
			}
			if events["3duprxmit"] != s.Dup3s || events["packrxmit"] != s.Packs || events["timerxmit"] != 1 {
				t.Errorf("the events are %v", events)
			}
			checkSamples(t, p.path("samples"), &s)

			line, err := server.stdout.ReadString('\n')
			var r received
			if err == nil {
				err = json.Unmarshal([]byte(line), &r)
			}
			if err != nil || r.End != "fin" || r.ReceiverCounts != *s.ReceiverStats || r.Mode != mode || r.AckedSegments == nil || *r.AckedSegments != 5000 {
				t.Errorf("%v in %s", err, line)
			}
			if rest := server.end(t); rest != "" {
				t.Errorf("more than a line: %s", rest)
			}
			if !strings.Contains(server.stderr.String(), "listening on 127.0.0.1:") {
				t.Errorf("it says %s", server.stderr)
			}
		})
	}
}

var (
	numbers = regexp.MustCompile(`[0-9]+(\.[0-9]+)?`)
	heads   = regexp.MustCompile(`(?m)^config: .* port|debug N .*$|^\S+ => \S+`)
)

// shape is a summary without what differs from transfer to transfer.
func shape(s string) string {
	s = numbers.ReplaceAllString(strings.TrimSuffix(s, "\n"), "N")
	return heads.ReplaceAllString(s, "...")
}

func lines(t *testing.T, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

// checkSamples reads samples with the decoder of line protocol's own library:
// counters never fall, and end where the summary does.
func checkSamples(t *testing.T, path string, s *summary) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d := lineprotocol.NewDecoderWithBytes(b)
	last, rows := map[string]lineprotocol.Value{}, 0
	for ; d.Next(); rows++ {
		m, err := d.Measurement()
		if err != nil || string(m) != "atou" {
			t.Fatalf("%q, %v", m, err)
		}
		if key, value, err := d.NextTag(); string(key) != "site" || string(value) != "here" || err != nil {
			t.Fatalf("tag %q=%q, %v", key, value, err)
		}
		if key, _, err := d.NextTag(); key != nil || err != nil {
			t.Fatalf("tag %q, %v", key, err)
		}
		_, ended := last["final"]
		for {
			key, value, err := d.NextField()
			if err != nil {
				t.Fatal(err)
			}
			if key == nil {
				break
			}
			switch name := string(key); name {
			case "bytes_sent", "bytes_acked", "total_retrans", "delivered", "busy_time_us", "rtt_samples", "dup_acks_in", "total_rto", "mono_ns":
				if was, ok := last[name]; ok && value.IntV() < was.IntV() {
					t.Errorf("%s falls from %v to %v", name, was, value)
				}
			}
			last[string(key)] = value
		}
		if _, has := last["srtt_us"]; has && rows == 0 {
			t.Error("an RTT before the first segment")
		}
		if _, err := d.Time(lineprotocol.Nanosecond, time.Time{}); err != nil || ended {
			t.Fatalf("a row after the last one, or %v", err)
		}
	}
	for name, want := range map[string]uint64{
		"bytes_acked": s.GoodBytes, "total_retrans": s.Rxmts, "total_rto": s.Timeouts, "delivered": 5000, "unacked": 0,
		"rtt_samples": s.RTTs, "srtt_us": uint64(s.SRTT / 1000), "snd_cwnd": uint64(s.SndCwnd), "dup_acks_in": s.Dups, "data_segs_out": s.PktsOut, "sacked": 0, "lost": 0, "retrans": 0,
	} {
		if got, ok := last[name]; !ok || got.IntV() != int64(want) {
			t.Errorf("the last %s is %v, the summary's %d", name, got, want)
		}
	}
	if final, ok := last["final"]; !ok || !final.BoolV() || rows < 3 {
		t.Errorf("%d rows, the last of them final: %v", rows, ok)
	}
}

// TestMistakes has what a user can do wrong: a line says what.
func TestMistakes(t *testing.T) {
	p := newPlace(t)
	good := p.sender(t, "")
	open := p.write(t, "open", "0123456789abcdef")
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	receiver := p.write(t, "receiver.conf", fmt.Sprintf("port %d\n", newPlace(t).port))
	busy, err := net.ListenPacket("udp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { busy.Close() })
	taken := p.write(t, "taken.conf", "port "+strconv.Itoa(busy.LocalAddr().(*net.UDPAddr).Port))
	for name, test := range map[string]struct {
		args []string
		code int
		want string
	}{
		"nothing":         {nil, 2, "usage: atou send"},
		"no command":      {[]string{"receive"}, 2, "usage: atou send"},
		"no flag":         {[]string{"send", "--fast", good}, 2, "flag provided but not defined: -fast"},
		"no config":       {[]string{"send", "--token-file", p.token}, 2, "one file of a configuration is wanted after the flags, 0 were given"},
		"flag behind":     {[]string{"send", good, "--token-file", p.token}, 2, "one file of a configuration is wanted after the flags, 3 were given"},
		"no token":        {[]string{"serve", receiver}, 2, "--token-file is missing"},
		"mode":            {[]string{"send", "--token-file", p.token, "--mode", "quick", good}, 2, `there is no mode "quick"; there are precise and bulk`},
		"bind":            {[]string{"send", "--token-file", p.token, "--bind", "here", good}, 2, `"here" is neither an address nor`},
		"tag":             {[]string{"send", "--token-file", p.token, "--tag", "site", good}, 2, "is not name=value"},
		"listen":          {[]string{"serve", "--token-file", p.token, "--listen", "here", receiver}, 2, `"here" for flag -listen: is no address; the port is in CONFIG`},
		"listen port":     {[]string{"serve", "--token-file", p.token, "--listen", "[::1]:80", receiver}, 2, "is no address; the port is in CONFIG"},
		"interval":        {[]string{"send", "--token-file", p.token, "--interval", "10us", good}, 2, `"10us" for flag -interval: allowed is a time from 1ms, such as 100ms`},
		"interval below":  {[]string{"send", "--token-file", p.token, "--interval", "-1s", good}, 2, "allowed is a time from 1ms"},
		"interval bare":   {[]string{"send", "--token-file", p.token, "--interval", "5", good}, 2, "such as 100ms"},
		"start":           {[]string{"send", "--token-file", p.token, "--start", "soon", good}, 2, "allowed is a whole number of ns since 1970"},
		"start below":     {[]string{"send", "--token-file", p.token, "--start", "-1", good}, 2, "allowed is a whole number of ns since 1970"},
		"start past":      {[]string{"send", "--token-file", p.token, "--start", "1700000000", good}, 2, " ago (1970-01-01T00:00:01Z); it is in ns since 1970"},
		"trace over conf": {[]string{"send", "--token-file", p.token, "--trace", good, good}, 1, "--trace " + good + " is the file of CONFIG too"},
		"json over token": {[]string{"send", "--token-file", p.token, "--json", p.token, good}, 1, "--json " + p.token + " is the file of --token-file too"},
		"two outputs":     {[]string{"send", "--token-file", p.token, "--events", p.path("two"), "--json", p.path("./two"), good}, 1, "is the file of --events too"},
		"ready over conf": {[]string{"serve", "--token-file", p.token, "--ready", receiver, receiver}, 1, "--ready " + receiver + " is the file of CONFIG too"},
		"host with port":  {[]string{"send", "--token-file", p.token, p.write(t, "ported.conf", "host 127.0.0.1:7890\n")}, 1, `ported.conf: found "127.0.0.1:7890"; allowed is a name or an address without port and brackets`},
		"config missing":  {[]string{"send", "--token-file", p.token, p.path("none")}, 1, "reading the configuration: open " + p.path("none") + ": no such file"},
		"config wrong":    {[]string{"send", "--token-file", p.token, p.write(t, "wrong.conf", "mss 5\nfast 1\n")}, 1, `wrong.conf:1: mss: found "5"; allowed is a whole number from 32 to 65507; ` + p.path("wrong.conf") + `:2: "fast" is no key`},
		"of the other":    {[]string{"serve", "--token-file", p.token, good}, 1, "host is a key of the sender"},
		"no host":         {[]string{"send", "--token-file", p.token, p.write(t, "hostless.conf", "mss 1000\n")}, 1, "hostless.conf names no host to send to"},
		"unknown host":    {[]string{"send", "--token-file", p.token, p.write(t, "unknown.conf", "host nowhere.invalid\n")}, 1, "unknown.conf: lookup nowhere.invalid"},
		"family":          {[]string{"send", "--token-file", p.token, "--bind", "::1", good}, 1, "host 127.0.0.1 has the addresses [127.0.0.1], none of the family of --bind ::1"},
		"bind elsewhere":  {[]string{"send", "--token-file", p.token, "--bind", "192.0.2.1", good}, 1, "binding to 192.0.2.1:0: cannot assign requested address"},
		"token missing":   {[]string{"send", "--token-file", p.path("none"), good}, 1, "reading the token: open " + p.path("none")},
		"token open":      {[]string{"serve", "--token-file", open, receiver}, 1, "has mode -rw-r--r--, but others must not read it: chmod 600"},
		"trace":           {[]string{"send", "--token-file", p.token, "--trace", p.path("no/trace"), good}, 1, "--trace: open " + p.path("no/trace")},
		"samples":         {[]string{"send", "--token-file", p.token, "--samples", p.path("no/samples"), good}, 1, "--samples: open " + p.path("no/samples")},
		"json":            {[]string{"send", "--token-file", p.token, "--json", p.path("no/json"), good}, 1, "--json: open " + p.path("no/json")},
		"gap in bulk":     {[]string{"send", "--token-file", p.token, "--mode", "bulk", p.write(t, "gap.conf", "host 127.0.0.1\ngap 100\n")}, 1, "gap 100µs needs the mode precise"},
		"port taken":      {[]string{"serve", "--token-file", p.token, taken}, 1, "address already in use"},
		"address of none": {[]string{"serve", "--token-file", p.token, "--listen", "192.0.2.1", receiver}, 1, "binding to 192.0.2.1:"},
		"ready":           {[]string{"serve", "--token-file", p.token, "--ready", p.path("no/ready"), receiver}, 1, "saying that it is ready: --ready: open "},
		"no server":       {[]string{"send", "--token-file", p.token, good}, 1, "asking the receiver at 127.0.0.1:" + strconv.Itoa(p.port) + " for a flow: no answer in 5s (connection refused). Is atou serve running there"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := runs(t, test.args...)
			if code != test.code || !strings.Contains(stderr, test.want) || stdout != "" {
				t.Errorf("%d, %q, %q; want %d and %q", code, stdout, stderr, test.code, test.want)
			}
			if code == 1 && strings.Count(stderr, "\n") != 1 || strings.Contains(stderr, "goroutine") {
				t.Errorf("not one line: %s", stderr)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"help"}, {"send", "--help"}, {"serve", "-h"}, {"simulate", "--help"}} {
		if code, stdout, stderr := runs(t, args...); code != 0 || !strings.HasPrefix(stdout+stderr, "usage: atou ") {
			t.Errorf("%v: %d, %s%s", args, code, stdout, stderr)
		}
	}
}

// TestOutputsStay: what there was is kept, and nothing new left, unless a flow
// was open; but the summary has the error.
func TestOutputsStay(t *testing.T) {
	p := newPlace(t)
	p.write(t, "trace", "of an earlier transfer\n")
	report := p.write(t, "json", strings.Repeat("longer than what comes ", 1000))
	code, _, stderr := runs(t, "send", "--token-file", p.token, "--mode", "bulk", "--trace", p.path("trace"), "--samples", p.path("samples"),
		"--json", report, "--events", "/dev/null", p.sender(t, "gap 100\n"))
	if code != 1 || !strings.Contains(stderr, "needs the mode precise") {
		t.Errorf("%d, %s", code, stderr)
	}
	if got := lines(t, p.path("trace")); got[0] != "of an earlier transfer" {
		t.Errorf("the trace has %q", got)
	}
	if _, err := os.Stat(p.path("samples")); !os.IsNotExist(err) {
		t.Errorf("samples: %v", err)
	}
	var s summary
	if b, err := os.ReadFile(report); err != nil || json.Unmarshal(b, &s) != nil || s.Error == "" {
		t.Errorf("%v in %s", err, b)
	}

	p.write(t, "trace", strings.Repeat("of an earlier transfer\n", 1000))
	p.serve(t, "")
	if code, _, stderr := runs(t, "send", "--token-file", p.token, "--trace", p.path("trace"), p.sender(t, "maxpkts 10\n")); code != 0 {
		t.Fatal(stderr)
	}
	if got := lines(t, p.path("trace")); len(got) != 20 {
		t.Errorf("the trace has %q", got)
	}
}

func TestSimulateIsInterrupted(t *testing.T) {
	for _, by := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		p := newPlace(t)
		c := command(t, "simulate", "--trace", p.path("trace"), p.write(t, "request", `{"sender": {"maxtime": 86400}, "forward": {"delay_ns": 1000}}`))
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		killed := time.AfterFunc(soon, func() { c.Process.Kill() })
		p.await(t, "trace", 1)
		c.Process.Signal(by)
		c.Wait()
		if !killed.Stop() {
			t.Errorf("%v does not end it", by)
		}
	}
}

// TestReady: the file is there only while flows can come.
func TestReady(t *testing.T) {
	p := newPlace(t)
	p.write(t, "ready", "of an earlier receiver\n")
	if code, _, stderr := runs(t, "serve", "--token-file", p.token, "--ready", p.path("ready"), p.path("none")); code != 1 {
		t.Errorf("%d, %s", code, stderr)
	}
	if _, err := os.Stat(p.path("ready")); !os.IsNotExist(err) {
		t.Errorf("after a failure: %v", err)
	}
	p.serve(t, "").end(t)
	if _, err := os.Stat(p.path("ready")); !os.IsNotExist(err) {
		t.Errorf("after the end: %v", err)
	}
}

// TestUnreported: a receiver that could not tell of a flow has failed.
func TestUnreported(t *testing.T) {
	p := newPlace(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	c := command(t, "serve", "--token-file", p.token, "--ready", p.path("ready"), p.write(t, "receiver.conf", fmt.Sprintf("port %d\n", p.port)))
	var report bytes.Buffer
	c.Stdout, c.Stderr = full, &report
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(soon, func() { c.Process.Kill() }).Stop()
	p.await(t, "ready", 1)
	if code, _, stderr := runs(t, "send", "--token-file", p.token, p.sender(t, "maxpkts 10\n")); code != 0 {
		t.Errorf("%d, %s", code, stderr)
	}
	c.Process.Signal(os.Interrupt)
	c.Wait()
	if c.ProcessState.ExitCode() != 1 || !strings.Contains(report.String(), "reporting flow 1: write /dev/stdout: no space left on device") {
		t.Errorf("%v, %s", c.ProcessState, &report)
	}
}

// TestShortBuffers: both ends say what the kernel did not give.
func TestShortBuffers(t *testing.T) {
	runtime.LockOSThread() // until its end: what is started from it may not exceed the limits, even as root
	unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_NET_ADMIN, 0, 0, 0)
	limit := map[string]int{}
	for _, name := range []string{"rmem_max", "wmem_max"} {
		n, err := strconv.Atoi(lines(t, "/proc/sys/net/core/"+name)[0])
		if err != nil {
			t.Fatal(err)
		}
		limit[name] = n
	}
	p := newPlace(t)
	asks := func(key, name string) (line, says string) {
		asked := 2 * limit[name]
		return fmt.Sprintf("%s %d\n", key, asked), fmt.Sprintf("%s: asked %d, the kernel gave %d: net.core.%s\n", key, asked, limit[name], name)
	}
	rcvbuf, received := asks("rcvbuf", "rmem_max")
	sndbuf, sent := asks("sndbuf", "wmem_max")
	conf := p.write(t, "receiver.conf", fmt.Sprintf("port %d\n", p.port)+rcvbuf)
	c := command(t, "serve", "--token-file", p.token, "--ready", p.path("ready"), conf)
	var report bytes.Buffer
	c.Stderr = &report
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(soon, func() { c.Process.Kill() }).Stop()
	p.await(t, "ready", 1)
	sender := p.write(t, "short.conf", fmt.Sprintf("host 127.0.0.1\nport %d\nmaxpkts 10\n", p.port)+sndbuf+rcvbuf)
	code, _, stderr := runs(t, "send", "--token-file", p.token, sender)
	if code != 0 || !strings.Contains(stderr, "atou send: "+sent) || !strings.Contains(stderr, "atou send: "+received) {
		t.Errorf("%d, %s", code, stderr)
	}
	c.Process.Signal(os.Interrupt)
	c.Wait()
	if !strings.Contains(report.String(), "atou serve: "+received) {
		t.Errorf("%s", &report)
	}
}

func TestWrongToken(t *testing.T) {
	p := newPlace(t)
	server := p.serve(t, "")
	other := p.write(t, "other", "another token, as long as it")
	code, stdout, stderr := runs(t, "send", "--token-file", other, p.sender(t, ""))
	if code != 1 || stdout != "" || !strings.Contains(stderr, "no answer in 5s. Is atou serve running there, with the same token") {
		t.Errorf("%d, %q, %q", code, stdout, stderr)
	}
	if rest := server.end(t); rest != "" || !strings.Contains(server.stderr.String(), "datagrams of strangers, or too late, were not answered") {
		t.Errorf("%q, %s", rest, server.stderr)
	}
}

// TestServerKilled: a sender without an end of its own ends when its receiver
// is killed, and has told what was done until then.
func TestServerKilled(t *testing.T) {
	p := newPlace(t)
	server := p.serve(t, "")
	c := command(t, "send", "--token-file", p.token, "--samples", p.path("samples"), "--json", p.path("json"), p.sender(t, "maxpkts 1000000000\nmaxtime 0\ngap 100\n"))
	var out, report bytes.Buffer
	c.Stdout, c.Stderr = &out, &report
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(soon, func() { c.Process.Kill() }).Stop()
	p.await(t, "samples", 2)
	if err := server.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	c.Wait()
	if c.ProcessState.ExitCode() != 1 || !strings.Contains(report.String(), ", and ICMP says connection refused; ") {
		t.Errorf("%v, %s", c.ProcessState, &report)
	}
	var s summary
	b, err := os.ReadFile(p.path("json"))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil || s.Error == "" || s.SndUna == 0 || s.ReceiverStats != nil || !strings.Contains(out.String(), " => 127.0.0.1 ") {
		t.Errorf("%v in %s; %s", err, b, &out)
	}
}

// TestInterrupted: a sender that is told to end tells its receiver, and both report.
func TestInterrupted(t *testing.T) {
	p := newPlace(t)
	server := p.serve(t, "")
	c := command(t, "send", "--token-file", p.token, "--samples", p.path("samples"), p.sender(t, "maxtime 3600\ngap 1000\n"))
	var out, report bytes.Buffer
	c.Stdout, c.Stderr = &out, &report
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(soon, func() { c.Process.Kill() }).Stop()
	p.await(t, "samples", 2)
	c.Process.Signal(os.Interrupt)
	c.Wait()
	if c.ProcessState.ExitCode() != 1 || !strings.Contains(report.String(), "atou send: interrupted after ") || !strings.Contains(out.String(), "config: ") {
		t.Errorf("%v, %s, %s", c.ProcessState, &report, &out)
	}
	rest := server.end(t)
	var r received
	if err := json.Unmarshal([]byte(rest), &r); err != nil || r.End != "fin" || r.Received == 0 {
		t.Errorf("%v in %q", err, rest)
	}
}
