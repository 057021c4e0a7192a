package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

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

// TestUnreported: a receiver that could not tell of a flow has failed.
func TestUnreported(t *testing.T) {
	p := newPlace(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	c := command(t, "serve", "--token-file", p.token, "--listen", p.host, "--ready", p.path("ready"), p.write(t, "receiver.conf", fmt.Sprintf("port %d\n", p.port)))
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
	c := command(t, "serve", "--token-file", p.token, "--listen", p.host, "--ready", p.path("ready"), conf)
	var report bytes.Buffer
	c.Stderr = &report
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(soon, func() { c.Process.Kill() }).Stop()
	p.await(t, "ready", 1)
	sender := p.write(t, "short.conf", fmt.Sprintf("host %s\nport %d\nmaxpkts 10\n", p.host, p.port)+sndbuf+rcvbuf)
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
	if err != nil || s.Error == "" || s.SndUna == 0 || s.ReceiverStats != nil || !strings.Contains(out.String(), " => "+p.host+" ") {
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
