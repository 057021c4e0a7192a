package live

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dumbbell/transports/atou/proto"
)

// mortal is a way to a server whose senders are, to it, at one address, and
// from which nothing comes while it is killed.
func mortal(t *testing.T, server running) (netip.AddrPort, *atomic.Bool) {
	t.Helper()
	var killed atomic.Bool
	_, to := newRelay(t, server.Addr(), 0, func(toServer bool, b []byte) [][]byte {
		if toServer && killed.Load() {
			return nil
		}
		return [][]byte{b}
	})
	return to, &killed
}

func freePort(t *testing.T) uint16 {
	t.Helper()
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(ipv4, 0)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Port()
}

// TestSenderGone: a flow of which nothing is heard ends, and makes room.
func TestSenderGone(t *testing.T) {
	server := start(t, ServeConfig{Receiver: receives(), Listen: ipv4, MaxFlows: 1, Idle: 200 * ms})
	to, killed := mortal(t, server)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Send(ctx, SendConfig{Sender: segments(10), Token: token, To: to, Observe: func(*proto.Event) {
		killed.Store(true)
		cancel()
	}})
	if err == nil {
		t.Fatal("interrupted, but without an error")
	}
	if f := server.end(t); f.End != EndIdle || f.Fin != nil {
		t.Errorf("%+v", f)
	}
	for deadline := time.Now().Add(soon); ; { // the place is free just after the flow is told
		if _, err = Send(t.Context(), SendConfig{Sender: segments(10), Token: token, To: server.Addr()}); err == nil {
			break
		}
		if !strings.Contains(err.Error(), "flows already") || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// TestReceiverGone: a sender whose receiver ends, or is heard no more, ends too,
// though its configuration would let it go on.
func TestReceiverGone(t *testing.T) {
	endless := segments(1 << 40)
	endless.MaxTime = 0
	t.Run("told by ICMP", func(t *testing.T) {
		server := start(t, ServeConfig{Receiver: receives(), Listen: ipv4})
		var once sync.Once
		_, err := Send(t.Context(), SendConfig{Sender: endless, Token: token, To: server.Addr(), Observe: func(*proto.Event) {
			once.Do(func() { go server.stop() })
		}})
		if err == nil || !strings.Contains(err.Error(), ", and ICMP says connection refused; ") {
			t.Error(err)
		}
		if f := server.end(t); f.End != EndStopped {
			t.Errorf("%+v", f)
		}
	})
	t.Run("silent", func(t *testing.T) {
		server := start(t, ServeConfig{Receiver: receives(), Listen: ipv4, Idle: 100 * ms})
		var n atomic.Int64
		_, to := newRelay(t, server.Addr(), 0, func(_ bool, b []byte) [][]byte {
			if n.Add(1) > 500 {
				return nil
			}
			return [][]byte{b}
		})
		_, err := Send(t.Context(), SendConfig{Sender: endless, Token: token, To: to, Silence: 300 * ms})
		if err == nil || !strings.Contains(err.Error(), ", and nothing says why; ") {
			t.Error(err)
		}
	})
	t.Run("no report", func(t *testing.T) {
		server := start(t, ServeConfig{Receiver: receives(), Listen: ipv4})
		_, to := newRelay(t, server.Addr(), 0, func(_ bool, b []byte) [][]byte {
			if kind, _, _ := proto.Peek(b); kind == proto.TypeReport {
				return nil
			}
			return [][]byte{b}
		})
		sent, err := Send(t.Context(), SendConfig{Sender: segments(10), Token: token, To: to})
		if err == nil || !strings.Contains(err.Error(), "for its report after 10 segments: no answer in 5s") || sent.Stats.Una != 10 || sent.Reported {
			t.Errorf("%+v, %v", sent, err)
		}
	})
}
