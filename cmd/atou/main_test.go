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
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
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

// A place has the files of a pair of ends, and a loopback address that no other test has, with a free port.
type place struct {
	dir, token, host string
	port             int
}

var places atomic.Uint32

func newPlace(t *testing.T) place {
	t.Helper()
	pid := os.Getpid()
	host := net.IPv4(127, byte(pid>>8), byte(pid), byte(2+places.Add(1)%250))
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: host})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p := place{dir: t.TempDir(), host: host.String(), port: conn.LocalAddr().(*net.UDPAddr).Port}
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
	return p.write(t, "sender.conf", fmt.Sprintf("host %s\nport %d\nsndbuf 4000000\nrcvbuf 16000000\n%s", p.host, p.port, lines))
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
	s := &served{cmd: command(t, "serve", "--token-file", p.token, "--listen", p.host, "--ready", p.path("ready"), config), stderr: new(bytes.Buffer)}
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
	if ready, want := p.await(t, "ready", 1), fmt.Sprintf("%s:%d\n", p.host, p.port); ready != want {
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

var (
	numbers = regexp.MustCompile(`[0-9]+(\.[0-9]+)?`)
	heads   = regexp.MustCompile(`(?m)^config: .* port|debug N .*$|^\S+ => \S+`)
)

// TestMistakes has what a user can do wrong: a line says what.
func TestMistakes(t *testing.T) {
	p := newPlace(t)
	good := p.sender(t, "")
	open := p.write(t, "open", "0123456789abcdef")
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	own := newPlace(t)
	receiver := p.write(t, "receiver.conf", fmt.Sprintf("port %d\n", own.port))
	busy, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(newPlace(t).host)})
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
		"family":          {[]string{"send", "--token-file", p.token, "--bind", "::1", good}, 1, fmt.Sprintf("host %[1]s has the addresses [%[1]s], none of the family of --bind ::1", p.host)},
		"bind elsewhere":  {[]string{"send", "--token-file", p.token, "--bind", "192.0.2.1", good}, 1, "binding to 192.0.2.1:0: cannot assign requested address"},
		"token missing":   {[]string{"send", "--token-file", p.path("none"), good}, 1, "reading the token: open " + p.path("none")},
		"token open":      {[]string{"serve", "--token-file", open, receiver}, 1, "has mode -rw-r--r--, but others must not read it: chmod 600"},
		"trace":           {[]string{"send", "--token-file", p.token, "--trace", p.path("no/trace"), good}, 1, "--trace: open " + p.path("no/trace")},
		"samples":         {[]string{"send", "--token-file", p.token, "--samples", p.path("no/samples"), good}, 1, "--samples: open " + p.path("no/samples")},
		"json":            {[]string{"send", "--token-file", p.token, "--json", p.path("no/json"), good}, 1, "--json: open " + p.path("no/json")},
		"gap in bulk":     {[]string{"send", "--token-file", p.token, "--mode", "bulk", p.write(t, "gap.conf", "host 127.0.0.1\ngap 100\n")}, 1, "gap 100µs needs the mode precise"},
		"port taken":      {[]string{"serve", "--token-file", p.token, taken}, 1, "address already in use"},
		"address of none": {[]string{"serve", "--token-file", p.token, "--listen", "192.0.2.1", receiver}, 1, "binding to 192.0.2.1:"},
		"ready":           {[]string{"serve", "--token-file", p.token, "--listen", own.host, "--ready", p.path("no/ready"), receiver}, 1, "saying that it is ready: --ready: open "},
		"no server":       {[]string{"send", "--token-file", p.token, good}, 1, "asking the receiver at " + p.host + ":" + strconv.Itoa(p.port) + " for a flow: no answer in 5s (connection refused). Is atou serve running there"},
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
