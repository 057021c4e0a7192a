package live

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dumbbell/transports/atou/handshake"
	"dumbbell/transports/atou/proto"
)

// TestStrangers: who has not the token gets no answer; who has gets no more
// bytes than he sent, before he has shown that he is where he says.
func TestStrangers(t *testing.T) {
	server := start(t, ServeConfig{Receiver: receives(), Listen: ipv4})
	conn, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(server.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	n := handshake.NewNonce()
	other := handshake.NewToken([]byte("another token, as long as it"))
	data, ack := make([]byte, 1460), make([]byte, proto.MaxAckBytes)
	(&proto.Data{ID: proto.ID{Flow: 1}, Bytes: len(data)}).Encode(data)
	open, _ := token.AppendOpen(nil, &handshake.Open{Nonce: n, Text: string(text(t, segments(10)))}) // without a cookie of this server
	hello := token.AppendHello(nil, n)
	strange := [][]byte{
		[]byte("what is this?"), {}, data, ack[:(&proto.Ack{}).Encode(ack)], (&proto.Fin{ID: proto.ID{Flow: 1}}).Append(nil),
		other.AppendHello(nil, n), open, hello[:len(hello)-1], append(slices.Clone(hello), 0),
	}
	for _, b := range append(strange, hello) {
		if _, err := conn.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	conn.SetReadDeadline(time.Now().Add(soon))
	b := make([]byte, 1<<16)
	got, err := conn.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := token.ReadChallenge(b[:got], n); err != nil || got > len(hello) { // so all before it have not been answered
		t.Errorf("%d bytes for %d: %v", got, len(hello), err)
	}
	if server.Foreign() != uint64(len(strange)) {
		t.Errorf("%d of %d counted", server.Foreign(), len(strange))
	}
}

// TestReplay sends again what opened a flow that has ended.
func TestReplay(t *testing.T) {
	server := start(t, ServeConfig{Receiver: receives(), Listen: ipv4})
	var opening atomic.Pointer[[]byte]
	path, to := newRelay(t, server.Addr(), 0, func(toServer bool, b []byte) [][]byte {
		if kind, _, _ := proto.Peek(b); toServer && kind == proto.TypeOpen {
			opening.Store(&b)
		}
		return [][]byte{b}
	})
	bind := netip.AddrPortFrom(ipv4, freePort(t))
	transfer(t, SendConfig{Sender: segments(10), To: to, Bind: bind})
	first := server.end(t)
	path.back.Write(*opening.Load())
	transfer(t, SendConfig{Sender: segments(20), To: to, Bind: bind}) // from the same port: at once, and as a new flow
	second := server.end(t)
	if first.Report.Received != 10 || second.Report.Received != 20 || second.ID.Flow != first.ID.Flow+1 {
		t.Errorf("%+v\n%+v", first, second)
	}
}

// TestReplaced: a sender that was killed, and started again at the same port,
// gets its flow.
func TestReplaced(t *testing.T) {
	server := start(t, ServeConfig{Receiver: receives(), Listen: ipv4})
	to, killed := mortal(t, server)
	ctx, cancel := context.WithCancel(t.Context())
	var n atomic.Int64
	_, err := Send(ctx, SendConfig{Sender: segments(1 << 40), To: to, Token: token, Observe: func(*proto.Event) {
		if n.Add(1) == 1000 {
			killed.Store(true)
			cancel()
		}
	}})
	if err == nil || !strings.Contains(err.Error(), "interrupted after") {
		t.Fatal(err)
	}
	killed.Store(false)
	transfer(t, SendConfig{Sender: segments(10), To: to})
	if f := server.end(t); f.End != EndReplaced || f.Fin != nil || f.Report.Received < 100 {
		t.Errorf("%+v", f)
	}
	if f := server.end(t); f.End != EndFin || f.Report.Received != 10 {
		t.Errorf("%+v", f)
	}
}

// TestSeveralFlows runs flows of both modes side by side.
func TestSeveralFlows(t *testing.T) {
	server := start(t, ServeConfig{Receiver: receives(), Listen: ipv4})
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			c := segments(1000 + uint64(i))
			sent, err := Send(t.Context(), SendConfig{Sender: c, Token: token, To: server.Addr(), Mode: Mode(i % 2)})
			if err != nil || sent.Receiver.Received != c.MaxPkts || sent.Path.Foreign != 0 {
				t.Errorf("%+v, %v", sent, err)
			}
		})
	}
	group.Wait()
}

// TestAnswersThatComeTwice: a receiver's second answers, to messages that were
// sent again, are not foreign to the flow that they opened.
func TestAnswersThatComeTwice(t *testing.T) {
	server := start(t, ServeConfig{Receiver: receives(), Listen: ipv4})
	var answers [][]byte
	_, to := newRelay(t, server.Addr(), 0, func(toServer bool, b []byte) [][]byte {
		switch kind, _, _ := proto.Peek(b); kind {
		case proto.TypeChallenge:
			answers = append(answers, b)
		case proto.TypeAccept:
			return append([][]byte{b, b}, answers...)
		}
		return [][]byte{b}
	})
	if sent := transfer(t, SendConfig{Sender: segments(10), To: to}); sent.Path.Foreign != 0 {
		t.Errorf("%d foreign datagrams", sent.Path.Foreign)
	}
}

// TestUnreadable: a receiver that cannot read what a sender tells of itself says
// so, and has room for another.
func TestUnreadable(t *testing.T) {
	server := start(t, ServeConfig{Receiver: receives(), Listen: ipv4, MaxFlows: 1})
	var mu sync.Mutex
	asked := map[handshake.Nonce]bool{}
	_, to := newRelay(t, server.Addr(), 0, func(toServer bool, b []byte) [][]byte {
		mu.Lock()
		defer mu.Unlock()
		open, err := token.ReadOpen(b)
		if !toServer || err != nil || len(asked) > 0 && !asked[open.Nonce] {
			return [][]byte{b}
		}
		asked[open.Nonce] = true
		open.Text = "mss 1\n"
		if b, err = token.AppendOpen(nil, &open); err != nil {
			t.Error(err)
		}
		return [][]byte{b}
	})
	_, err := Send(t.Context(), SendConfig{Sender: segments(10), Token: token, To: to})
	if err == nil || !strings.Contains(err.Error(), `refuses the flow: the sender's configuration:1: mss: found "1"`) {
		t.Error(err)
	}
	transfer(t, SendConfig{Sender: segments(10), To: to})
}

func TestTooManyFlows(t *testing.T) {
	server := start(t, ServeConfig{Receiver: receives(), Listen: ipv4, MaxFlows: 1})
	transfer(t, SendConfig{Sender: segments(10), To: server.Addr()})
	_, err := Send(t.Context(), SendConfig{Sender: segments(10), Token: token, To: server.Addr()})
	if err == nil || !strings.Contains(err.Error(), "refuses the flow: there are 1 flows already") {
		t.Error(err)
	}
}
