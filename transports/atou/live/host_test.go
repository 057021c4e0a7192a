package live

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"dumbbell/transports/atou/proto"

	"golang.org/x/sys/unix"
)

const inside = "ATOU_TEST_HAS_ITS_OWN_NETWORK"

// isolated runs a test once more, in a process that has a network of its own,
// and reports whether this is that process.
func isolated(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inside) != "" {
		command(t, "ip", "link", "set", "lo", "up")
		return true
	}
	again := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=1m")
	again.Env = append(os.Environ(), inside+"=1")
	again.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	said, err := again.CombinedOutput()
	switch {
	case again.Process == nil:
		t.Skip("making a network of its own: ", err)
	case err != nil:
		t.Errorf("%v\n%s", err, said)
	case strings.Contains(string(said), "SKIP"):
		t.Skipf("%s", said)
	}
	return false
}

func command(t *testing.T, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(args[0]); err != nil {
		t.Skip(err)
	}
	if said, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, said)
	}
}

// TestFull: a sender whose host has no room for what it sends ends in time
// nevertheless, whether it is told when there is room or not.
func TestFull(t *testing.T) {
	t.Parallel()
	if !isolated(t) {
		return
	}
	for _, limit := range []string{"100", "10000000"} { // bytes: not one segment, and more than the socket's buffer
		for _, mode := range []Mode{Precise, Bulk} {
			for _, interrupted := range []bool{false, true} {
				t.Run(fmt.Sprintf("limit %s, %v, interrupted %v", limit, mode, interrupted), func(t *testing.T) {
					server := start(t, ServeConfig{Receiver: receives(), Listen: ipv4})
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					c := segments(0)
					c.SndBuf, c.InitSegs, c.MaxTime = 32768, 200, 300*ms
					if interrupted {
						c.MaxTime, c.MaxPkts = 0, 1<<40
					}
					room := make(chan bool)
					sent, err := Send(ctx, SendConfig{Sender: c, Token: token, To: server.Addr(), Mode: mode, Interval: time.Minute, Sample: func(s *Sample) {
						if s.Final {
							return
						}
						command(t, "tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "8kbit", "burst", "2000", "limit", limit)
						time.AfterFunc(300*ms, func() {
							if interrupted {
								cancel()
							}
						})
						time.AfterFunc(2*time.Second, func() {
							exec.Command("tc", "qdisc", "del", "dev", "lo", "root").Run()
							close(room)
						})
					}})
					if sent.Elapsed > 1800*ms || sent.Stats.Enobufs == 0 {
						t.Errorf("it ended after %v, refused %d times", sent.Elapsed, sent.Stats.Enobufs)
					}
					if interrupted != (err != nil && strings.Contains(err.Error(), "interrupted after")) {
						t.Error(err)
					}
					<-room
				})
			}
		}
	}
}

// TestFirewall: what the firewall of a host drops is lost, as on any path.
func TestFirewall(t *testing.T) {
	if !isolated(t) {
		return
	}
	// Every tenth train of segments, and every tenth of what is shorter.
	command(t, "nft", "add table inet t; add chain inet t o { type filter hook output priority 0; }; "+
		"add rule inet t o meta l4proto udp meta length > 1000 numgen inc mod 10 == 5 drop; "+
		"add rule inet t o meta l4proto udp meta length <= 1000 numgen inc mod 10 == 5 drop")
	for _, mode := range []Mode{Precise, Bulk} {
		for _, noGSO := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, without GSO %v", mode, noGSO), func(t *testing.T) {
				withoutGSO = noGSO
				defer func() { withoutGSO = false }()
				r := receives()
				r.SACK = true
				server := start(t, ServeConfig{Receiver: r, Listen: ipv4})
				c := segments(1000)
				c.SACK, c.RcvrWin, c.Timeout = true, 100, 20*ms
				sent := transfer(t, SendConfig{Sender: c, To: server.Addr(), Mode: mode})
				got := server.end(t)
				if sent.Path.Errors == 0 || sent.Receiver.Received != 1000 || got.Unsent == 0 || got.Unsent >= sent.Receiver.AcksSent {
					t.Errorf("%+v\n%+v", sent, got)
				}
				if lost := sent.Stats.Out - got.Report.Arrived; mode == Precise && lost != sent.Path.Errors {
					t.Errorf("%d segments are lost, %d were refused", lost, sent.Path.Errors)
				}
			})
		}
	}
}

// TestFailed: a sender that gives up says so to its receiver.
func TestFailed(t *testing.T) {
	server := start(t, ServeConfig{Receiver: receives(), Listen: ipv4})
	var acks atomic.Int64
	_, to := newRelay(t, server.Addr(), 0, func(_ bool, b []byte) [][]byte {
		if kind, _, _ := proto.Peek(b); kind == proto.TypeAck && acks.Add(1) > 100 {
			return nil
		}
		return [][]byte{b}
	})
	c := segments(1 << 40)
	c.Timeout = 50 * ms
	sent, err := Send(t.Context(), SendConfig{Sender: c, Token: token, To: to, Silence: 300 * ms})
	if err == nil || !strings.Contains(err.Error(), " is gone: ") || !sent.Reported {
		t.Errorf("%v; reported %v", err, sent.Reported)
	}
	if f := server.end(t); f.End != EndFin {
		t.Errorf("%+v", f)
	}
}

// TestLongTimeout: both ends last for longer than they are told if a time-out does.
func TestLongTimeout(t *testing.T) {
	server := start(t, ServeConfig{Receiver: receives(), Listen: ipv4, Idle: 200 * ms})
	c := segments(10)
	c.InitSegs, c.DropList, c.Timeout = 1, []uint64{0}, 500*ms
	sent := transfer(t, SendConfig{Sender: c, To: server.Addr(), Silence: 200 * ms})
	if f := server.end(t); f.End != EndFin || sent.Stats.Timeouts != 1 {
		t.Errorf("%d time-outs; %+v", sent.Stats.Timeouts, f)
	}
}

// TestLongRTT: a report that takes longer than an answer does otherwise, but not
// than the ACKs before it, is waited for.
func TestLongRTT(t *testing.T) {
	t.Parallel()
	const long = answerWait + 300*ms
	server := start(t, ServeConfig{Receiver: receives(), Listen: ipv4})
	var acks, reports sync.Once
	_, to := newRelay(t, server.Addr(), 0, func(_ bool, b []byte) [][]byte {
		switch kind, _, _ := proto.Peek(b); kind {
		case proto.TypeAck:
			acks.Do(func() { time.Sleep(long) })
		case proto.TypeReport:
			reports.Do(func() { time.Sleep(long) })
		}
		return [][]byte{b}
	})
	if sent := transfer(t, SendConfig{Sender: segments(1), To: to}); sent.Stats.MaxRTT < long {
		t.Errorf("%+v", sent.Stats)
	}
}

// TestInterruptedBeforeStart: a start that is far off, as it is once the clock
// has been set back, is not waited for.
func TestInterruptedBeforeStart(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*ms)
	defer cancel()
	s := &sender{config: &SendConfig{Start: time.Now().Add(3 * time.Second)}}
	err := s.run(ctx, &Sent{})
	if err == nil || !strings.Contains(err.Error(), "interrupted before the start") || time.Now().After(s.config.Start) {
		t.Error(err)
	}
}
