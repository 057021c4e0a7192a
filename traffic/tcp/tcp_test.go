package tcp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"dumbbell/traffic/socket"

	"golang.org/x/sys/unix"
)

const controls = "cubic"

// freePort is a port that nobody has, followed by some that nobody has likely.
func freePort(t *testing.T, address string) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Skip(err) // a host without IPv6
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort().Port()
}

var loopbacks atomic.Uint32

// loopback is a flow on loopback. Of IPv4, its address is one that no other test has, and so are its ports.
func loopback(t *testing.T, address string, streams int) Config {
	t.Helper()
	a := netip.MustParseAddr(address)
	if a.Is4() {
		pid := os.Getpid()
		a = netip.AddrFrom4([4]byte{127, byte(pid >> 8), byte(pid), byte(2 + loopbacks.Add(1)%250)})
	}
	port := func() netip.AddrPort { return netip.AddrPortFrom(a, freePort(t, a.String())) }
	return Config{
		Sender: port(), Receiver: port(), Streams: streams, Token: 7,
		Options: Options{CongestionControl: controls},
	}
}

// A flow is what both ends have told.
type flow struct {
	sent                SentResult
	received            ReceivedResult
	sendErr, receiveErr error
	start               time.Time
}

// transfer runs both ends of a flow, whose data starts after a tenth of a second.
func transfer(t *testing.T, config Config, schedule Schedule, limit time.Duration) (f flow) {
	t.Helper()
	receiver, err := NewReceiver(config)
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	sender, err := NewSender(SenderConfig{Config: config, Schedule: schedule, Drain: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	f.start = time.Now().Add(100 * time.Millisecond)
	done := make(chan struct{})
	go func() {
		f.received, f.receiveErr = receiver.Run(ctx, f.start)
		close(done)
	}()
	f.sent, f.sendErr = sender.Run(ctx, time.Now(), f.start)
	<-done
	return f
}

// agree checks that the counts of both ends are those of one flow, and returns all bytes.
func (f flow) agree(t *testing.T, streams int) (total int64) {
	t.Helper()
	if f.sendErr != nil || f.receiveErr != nil {
		t.Fatal(f.sendErr, f.receiveErr)
	}
	if len(f.sent.Streams) != streams || len(f.received.Streams) != streams || f.received.Foreign != 0 {
		t.Fatalf("sent %+v, received %+v", f.sent, f.received)
	}
	for i, sent := range f.sent.Streams {
		got := f.received.Streams[i]
		if sent.Bytes != got.Bytes || sent.ConfirmedBytes != sent.Bytes || !got.EndSeen {
			t.Errorf("stream %d: sent %+v, received %+v", i, sent, got)
		}
		if first := time.Unix(0, sent.FirstUnixNs); first.Before(f.start) || sent.ConnectedUnixNs > f.start.UnixNano() {
			t.Errorf("stream %d: connected and sent at %+v, the start was at %v", i, sent, f.start)
		}
		total += sent.Bytes
	}
	for name, counts := range map[string][]int64{"sender": f.sent.IntervalBytes, "receiver": f.received.IntervalBytes} {
		if sum := sumOf(counts); sum != total {
			t.Errorf("the intervals of the %s have %d bytes, of %d", name, sum, total)
		}
	}
	return total
}

func sumOf(counts []int64) (sum int64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// TestBulk sends as fast as possible until the end, and does so in few calls.
func TestBulk(t *testing.T) {
	for _, address := range []string{"127.0.0.1", "::1"} {
		t.Run(address, func(t *testing.T) {
			t.Parallel()
			const duration = 1200 * time.Millisecond
			f := transfer(t, loopback(t, address, 1), Schedule{Duration: duration}, 20*time.Second)
			total := f.agree(t, 1)
			sent, got := f.sent.Streams[0], f.received.Streams[0]
			if took := time.Duration(sent.LastUnixNs - sent.FirstUnixNs); took < duration*9/10 {
				t.Errorf("sent for %v", took)
			}
			if f.sent.AskedBytes != 0 {
				t.Errorf("%+v", f.sent)
			}
			// Two seconds have begun, and reading the end is one more call. Signals of Go's runtime interrupt some.
			if most := 10 + 2*total/(atOnce*int64(len(block))); sent.Calls > most {
				t.Errorf("%d calls for %d bytes", sent.Calls, total)
			}
			if most := 10 + 2*total/mostAtOnce; got.Calls > most {
				t.Errorf("%d calls for %d bytes", got.Calls, total)
			}
		})
	}
}

// TestAgain uses the ports of a flow that has just ended.
func TestAgain(t *testing.T) {
	t.Parallel()
	config := loopback(t, "127.0.0.1", 2)
	for range 3 {
		f := transfer(t, config, Schedule{Duration: time.Minute, Bytes: 1e6}, 20*time.Second)
		f.agree(t, 2)
	}
}

// TestBytes ends as soon as all has arrived.
func TestBytes(t *testing.T) {
	t.Parallel()
	for _, bytes := range []int64{3 * HeaderBytes, 1000, 20_000_001} {
		f := transfer(t, loopback(t, "127.0.0.1", 3), Schedule{Duration: time.Minute, Bytes: bytes}, 20*time.Second)
		if total := f.agree(t, 3); total != bytes || f.sent.AskedBytes != bytes {
			t.Errorf("%d bytes of %d, asked %d", total, bytes, f.sent.AskedBytes)
		}
	}
}

// TestRate writes as much as is due.
func TestRate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		schedule Schedule
		want     int64
	}{
		{Schedule{RateBps: 8e6, Duration: 500 * time.Millisecond}, 500_000},
		{Schedule{RateBps: 100e3, Duration: 1100 * time.Millisecond}, 13_750}, // a segment each 116 ms
		{Schedule{RateBps: 1000, Duration: 500 * time.Millisecond}, 62},
		{Schedule{Burst: 64_000, Every: 100 * time.Millisecond, Duration: 450 * time.Millisecond}, 5 * 64_000},
		{Schedule{Burst: 64_000, Every: 100 * time.Millisecond, Duration: time.Minute, Bytes: 100_000}, 100_000},
	} {
		f := transfer(t, loopback(t, "127.0.0.1", 1), c.schedule, 20*time.Second)
		if total := f.agree(t, 1); total != c.want || f.sent.AskedBytes != c.want {
			t.Errorf("%+v: %d bytes, asked %d, want %d", c.schedule, total, f.sent.AskedBytes, c.want)
		}
		last := time.Unix(0, f.sent.Streams[0].LastUnixNs).Sub(f.start)
		if c.schedule.Burst > 0 && c.schedule.Bytes == 0 && last < 400*time.Millisecond {
			t.Errorf("the last of 5 bursts was sent after %v", last)
		}
	}
}

// TestOptions are those of the sockets at both ends.
func TestOptions(t *testing.T) {
	for _, address := range []string{"127.0.0.1", "::1"} {
		t.Run(address, func(t *testing.T) {
			t.Parallel()
			config := loopback(t, address, 1)
			config.Options = Options{CongestionControl: "reno", PacingBps: 80e6, MSS: 1000, SendBuffer: 65536, ReceiveBuffer: 65536, DSCP: 46, NoDelay: true}
			f := transfer(t, config, Schedule{Duration: 500 * time.Millisecond}, 20*time.Second)
			total := f.agree(t, 1)
			for name, got := range map[string]Stream{"sender": f.sent.Streams[0].Stream, "receiver": f.received.Streams[0].Stream} {
				if got.CongestionControl != "reno" || got.MSS > 1000 || got.MSS < 960 || got.SendBuffer != 131072 || got.ReceiveBuffer != 131072 ||
					got.DSCP != 46 || !got.NoDelay {
					t.Errorf("%s: %+v", name, got)
				}
			}
			if total > 10e6 { // half a second of 80 Mbit/s, and what is sent before the kernel paces
				t.Errorf("%d bytes were not paced", total)
			}
		})
	}
}

// TestRefusedConfigs names what is wrong.
func TestRefusedConfigs(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*SenderConfig){
		"0 streams":                   func(c *SenderConfig) { c.Streams = 0 },
		"ports up to 65535":           func(c *SenderConfig) { c.Streams, c.Sender = 2, netip.AddrPortFrom(c.Sender.Addr(), 65535) },
		"duration must be positive":   func(c *SenderConfig) { c.Schedule.Duration = 0 },
		"not both":                    func(c *SenderConfig) { c.Schedule.RateBps, c.Schedule.Burst, c.Schedule.Every = 1, 1, 1 },
		"belong together":             func(c *SenderConfig) { c.Schedule.Burst = 1000 },
		"16 bytes at least":           func(c *SenderConfig) { c.Schedule.Bytes = 15 },
		"must not be negative":        func(c *SenderConfig) { c.Schedule.RateBps = -1 },
		"TCP_CONGESTION nonesuch: no": func(c *SenderConfig) { c.CongestionControl = "nonesuch" },
		"TCP_MAXSEG 1: invalid":       func(c *SenderConfig) { c.MSS = 1 },
	} {
		config := SenderConfig{Config: loopback(t, "127.0.0.1", 1), Schedule: Schedule{Duration: time.Second}}
		change(&config)
		if _, err := NewSender(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestPortTaken: that is found before anything is sent, at both ends.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	config := loopback(t, "127.0.0.1", 1)
	for _, own := range []netip.AddrPort{config.Sender, config.Receiver} {
		l, err := net.Listen("tcp", own.String())
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	if _, err := NewReceiver(config); !errors.Is(err, unix.EADDRINUSE) {
		t.Error(err)
	}
	if _, err := NewSender(SenderConfig{Config: config, Schedule: Schedule{Duration: time.Second}}); !errors.Is(err, unix.EADDRINUSE) || !strings.Contains(err.Error(), config.Sender.String()) {
		t.Error(err)
	}
}

// TestNobodyListens has no receiver.
func TestNobodyListens(t *testing.T) {
	t.Parallel()
	config := loopback(t, "127.0.0.1", 1)
	sender, err := NewSender(SenderConfig{Config: config, Schedule: Schedule{Duration: time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	if _, err = sender.Run(t.Context(), time.Now(), time.Now()); !errors.Is(err, unix.ECONNREFUSED) || !strings.Contains(err.Error(), config.Receiver.String()) {
		t.Error(err)
	}
}

// TestReceiverEnds: a sender whose receiver ends before says how far it came.
func TestReceiverEnds(t *testing.T) {
	t.Parallel()
	f := transferUnequal(t, Schedule{Duration: 30 * time.Second}, 30*time.Second, 500*time.Millisecond)
	if !errors.Is(f.sendErr, unix.ECONNRESET) && !errors.Is(f.sendErr, unix.EPIPE) || !strings.Contains(f.sendErr.Error(), " bytes: ") {
		t.Error(f.sendErr)
	}
	if got := f.received.Streams[0]; f.receiveErr != nil || got.EndSeen || got.Bytes == 0 || got.Bytes > f.sent.Streams[0].Bytes {
		t.Errorf("%+v, %v", f.received, f.receiveErr)
	}
}

// TestSenderEnds: a receiver whose sender is stopped has not seen the end.
func TestSenderEnds(t *testing.T) {
	t.Parallel()
	f := transferUnequal(t, Schedule{Duration: 30 * time.Second}, 500*time.Millisecond, 4*time.Second)
	if f.sendErr != nil || f.sent.Streams[0].ConfirmedBytes != 0 {
		t.Errorf("%+v, %v", f.sent, f.sendErr)
	}
	if got := f.received.Streams[0]; f.receiveErr != nil || got.EndSeen || got.Bytes == 0 || got.Bytes > f.sent.Streams[0].Bytes {
		t.Errorf("%+v, %v", f.received, f.receiveErr)
	}
}

// transferUnequal ends both ends at times of their own.
func transferUnequal(t *testing.T, schedule Schedule, sends, receives time.Duration) (f flow) {
	t.Helper()
	config := loopback(t, "127.0.0.1", 1)
	receiver, err := NewReceiver(config)
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	sender, err := NewSender(SenderConfig{Config: config, Schedule: schedule, Drain: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	sending, cancel := context.WithTimeout(t.Context(), sends)
	defer cancel()
	receiving, cancel := context.WithTimeout(t.Context(), receives)
	defer cancel()
	done := make(chan struct{})
	go func() {
		f.received, f.receiveErr = receiver.Run(receiving, time.Now())
		close(done)
	}()
	f.sent, f.sendErr = sender.Run(sending, time.Now(), time.Now())
	sender.Close()
	<-done
	return f
}

// TestSilentReceiver has a peer that takes nothing, and never answers: the flow ends in its time.
func TestSilentReceiver(t *testing.T) {
	t.Parallel()
	config := loopback(t, "127.0.0.1", 1)
	l, err := net.Listen("tcp", config.Receiver.String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	sender, err := NewSender(SenderConfig{Config: config, Schedule: Schedule{Duration: 500 * time.Millisecond}, Drain: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	began := time.Now()
	sent, err := sender.Run(t.Context(), began, began)
	took := time.Since(began)
	if err != nil || sent.Streams[0].Bytes == 0 || sent.Streams[0].ConfirmedBytes != 0 || took < 700*time.Millisecond || took > 5*time.Second {
		t.Errorf("%+v after %v: %v", sent, took, err)
	}
}

// TestStrangers: neither those from elsewhere nor those with other ports or another token are the flow's.
func TestStrangers(t *testing.T) {
	t.Parallel()
	config := loopback(t, "127.0.0.1", 1)
	receiver, err := NewReceiver(config)
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	var received ReceivedResult
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	done := make(chan error)
	go func() {
		var err error
		received, err = receiver.Run(ctx, time.Now())
		done <- err
	}()
	elsewhere := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, Timeout: 200 * time.Millisecond}
	if conn, err := elsewhere.Dial("tcp", config.Receiver.String()); err == nil {
		conn.Close()
		t.Error("a stranger from elsewhere was let in")
	}
	near := net.Dialer{LocalAddr: &net.TCPAddr{IP: config.Sender.Addr().AsSlice()}}
	for range 100 { // of the sender's host, with other ports
		conn, err := near.Dial("tcp", config.Receiver.String())
		if errors.Is(err, unix.ECONNRESET) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if n, err := conn.Read(make([]byte, 1)); n != 0 || !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%d, %v", n, err)
		}
		conn.Close()
	}
	// With its port, but another token; it is ended at once, and the port is free again.
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(fd, socket.Sockaddr(config.Sender)),
			unix.Connect(fd, socket.Sockaddr(config.Receiver)))
	}
	if err == nil {
		_, err = unix.Write(fd, make([]byte, HeaderBytes))
	}
	if err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Read(fd, make([]byte, 1)); n > 0 || err != unix.ECONNRESET {
		t.Errorf("%d, %v", n, err)
	}
	unix.Close(fd)

	sender, err := NewSender(SenderConfig{Config: config, Schedule: Schedule{Duration: time.Minute, Bytes: 5e6}, Drain: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	sent, err := sender.Run(ctx, time.Now(), time.Now())
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	if received.Foreign != 101 || len(received.Streams) != 1 || received.Streams[0].Bytes != 5e6 || sent.Streams[0].ConfirmedBytes != 5e6 {
		t.Errorf("sent %+v, received %+v", sent, received)
	}
}
