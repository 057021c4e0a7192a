package live

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dumbbell/transports/atou/config"
	"dumbbell/transports/atou/handshake"
	"dumbbell/transports/atou/proto"
	"dumbbell/transports/atou/sim"
)

const (
	ms   = time.Millisecond
	soon = 20 * time.Second // a test waits so long for what has to come
)

var (
	token = handshake.NewToken([]byte("of these tests, and of no other"))
	ipv4  = netip.MustParseAddr("127.0.0.1")
)

// A running is a server whose flows are told once they have ended.
type running struct {
	*Server
	finished chan Finished
	stop     func() // and wait until it has
}

func start(t testing.TB, c ServeConfig) running {
	t.Helper()
	c.Token = token
	r := running{finished: make(chan Finished, 100)}
	c.Finished = func(f Finished) { r.finished <- f }
	var err error
	if r.Server, err = NewServer(c); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		r.Close()
	})
	t.Cleanup(r.stop)
	return r
}

func (r running) end(t *testing.T) Finished {
	t.Helper()
	select {
	case f := <-r.finished:
		return f
	case <-time.After(soon):
		t.Fatal("no flow has ended")
		panic("unreachable")
	}
}

// receives has room for all that these tests send.
func receives() config.Receiver {
	c := config.DefaultReceiver()
	c.Port, c.RcvBuf = 0, 16<<20
	return c
}

func segments(n uint64) config.Sender {
	c := config.DefaultSender()
	c.Host, c.MaxPkts, c.MaxTime = "receiver", n, 20*time.Second
	c.SndBuf, c.RcvBuf, c.Tick = 4<<20, 16<<20, 0
	return c
}

func transfer(t testing.TB, c SendConfig) Sent {
	t.Helper()
	c.Token = token
	sent, err := Send(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return sent
}

// A step is what a sender did, without its time.
type step struct {
	Kind proto.Kind
	Seg  uint64
}

func (s step) String() string {
	return fmt.Sprintf("%s %d", []string{"xmt", "rxt", "drop", "ack", "3duprxmit", "packrxmit", "timerxmit", "badack"}[s.Kind], s.Seg)
}

func recording(steps *[]step) func(*proto.Event) {
	return func(e *proto.Event) { *steps = append(*steps, step{e.Kind, e.Seg}) }
}

func TestTransfer(t *testing.T) {
	for name, test := range map[string]struct {
		address string
		mss     int
		mode    Mode
		noGSO   bool
	}{
		"IPv4":              {"127.0.0.1", 1460, Precise, false},
		"IPv6":              {"::1", 1440, Precise, false},
		"bulk":              {"127.0.0.1", 1460, Bulk, false},
		"bulk, IPv6":        {"::1", 1440, Bulk, false},
		"fragmented":        {"127.0.0.1", config.MaxMSS, Precise, false},
		"bulk, fragmented":  {"::1", 40000, Bulk, false},
		"least mss":         {"127.0.0.1", config.HeaderBytes, Precise, false},
		"bulk, least mss":   {"127.0.0.1", config.HeaderBytes, Bulk, false},
		"bulk, without GSO": {"127.0.0.1", 1460, Bulk, true},
	} {
		t.Run(name, func(t *testing.T) {
			withoutGSO = test.noGSO
			t.Cleanup(func() { withoutGSO = false })
			server := start(t, ServeConfig{Receiver: receives()}) // at all addresses
			c := segments(3000)
			c.MSS = test.mss
			if test.mss > 10000 {
				c.MaxPkts = 200
			}
			to := netip.AddrPortFrom(netip.MustParseAddr(test.address), server.Addr().Port())
			sent := transfer(t, SendConfig{Sender: c, To: to, Mode: test.mode})
			got := server.end(t)
			n := c.MaxPkts
			if sent.Stats.Una != n || sent.Stats.Out != n || !sent.Reported || sent.Receiver.Received != n || sent.Receiver.Bytes != n*uint64(c.MSS) {
				t.Errorf("sent %+v", sent)
			}
			if sent.Path.Foreign+sent.Path.Errors != 0 || sent.Config != server.config.Receiver || sent.Elapsed <= 0 {
				t.Errorf("sent %+v", sent)
			}
			if got.End != EndFin || got.Report != sent.Receiver || got.Fin == nil || got.Fin.Segments != n || got.Foreign != 0 || got.Mode != test.mode {
				t.Errorf("received %+v", got)
			}
			if want, _ := c.AppendText(nil); string(want) != string(text(t, got.Sender)) {
				t.Errorf("the receiver knows %+v of the sender", got.Sender)
			}
			if calls := sent.Path.Trains; test.mode == Precise && calls != n || sent.Path.GSO && calls >= n {
				t.Errorf("%d segments left in %d trains", n, calls)
			}
		})
	}
}

func text(t *testing.T, c config.Sender) []byte {
	t.Helper()
	b, err := c.AppendText(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestAsSimulated: with the same segments suppressed, a live transfer does what
// the simulated one does, step by step. All of it is clocked by ACKs, so that
// times make no difference.
func TestAsSimulated(t *testing.T) {
	drops := map[string][]uint64{
		"none":   nil,
		"one":    {100},
		"window": {100, 101, 105, 110, 111, 190, 300},
		"tail":   {597, 598, 599},
		"again":  {50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 400, 410, 420},
		"first":  {0, 1},
	}
	for name, set := range map[string]func(*config.Sender){
		"newreno":  func(*config.Sender) {},
		"reno":     func(c *config.Sender) { c.NewReno = false },
		"sack":     func(c *config.Sender) { c.SACK = true },
		"fack":     func(c *config.Sender) { c.SACK, c.FACK = true, true },
		"rampdown": func(c *config.Sender) { c.SACK, c.Rampdown = true, true },
		"prr":      func(c *config.Sender) { c.SACK, c.PRR, c.Reloss = true, true, true },
		"bursts":   func(c *config.Sender) { c.SACK, c.BurstLimit, c.InitSegs = true, 3, 10 },
		"scalable": func(c *config.Sender) { c.Scalable, c.ABC = true, true },
	} {
		for list, drop := range drops {
			for _, mode := range []Mode{Precise, Bulk} {
				t.Run(fmt.Sprintf("%s, %s, %v", name, list, mode), func(t *testing.T) {
					t.Parallel()
					c := segments(600)
					c.RcvrWin, c.DropList, c.Timeout = 60, drop, 300*ms
					set(&c)
					r := receives()
					r.SACK = c.SACK
					var want, got []step
					path := sim.Path{Delay: 10 * ms}
					if _, err := sim.Run(sim.Config{Sender: c, Receiver: r, Forward: path, Back: path, Observe: recording(&want)}); err != nil {
						t.Fatal(err)
					}
					server := start(t, ServeConfig{Receiver: r, Listen: ipv4})
					transfer(t, SendConfig{Sender: c, To: server.Addr(), Mode: mode, Observe: recording(&got)})
					compare(t, got, want)
				})
			}
		}
	}
}

func compare(t *testing.T, got, want []step) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			from := max(0, i-3)
			t.Fatalf("%d steps, simulated are %d; from step %d on\n%v, simulated\n%v", len(got), len(want), from,
				got[min(from, len(got)):min(i+4, len(got))], want[min(from, len(want)):min(i+4, len(want))])
		}
	}
}

// A relay is a path between a sender and a receiver: each datagram leaves it
// after a delay, or never.
type relay struct {
	front, back *net.UDPConn
	peer        atomic.Pointer[netip.AddrPort]
}

// newRelay makes a path to a server. Through tells what becomes of a datagram:
// what leaves the far end.
func newRelay(t *testing.T, to netip.AddrPort, delay time.Duration, through func(toServer bool, b []byte) [][]byte) (*relay, netip.AddrPort) {
	t.Helper()
	front, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(ipv4, 0)))
	if err != nil {
		t.Fatal(err)
	}
	back, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{front: front, back: back}
	type held struct {
		at time.Time
		b  []byte
	}
	carry := func(from *net.UDPConn, toServer bool) {
		queue := make(chan held, 100000)
		t.Cleanup(func() { from.Close() })
		go func() {
			defer close(queue)
			buffer := make([]byte, 1<<16)
			for {
				n, peer, err := from.ReadFromUDPAddrPort(buffer)
				if isClosed(err) {
					return
				}
				if err != nil {
					continue // told by ICMP
				}
				if toServer {
					r.peer.Store(&peer)
				}
				for _, b := range through(toServer, slices.Clone(buffer[:n])) {
					queue <- held{time.Now().Add(delay), b}
				}
			}
		}()
		go func() {
			for h := range queue {
				time.Sleep(time.Until(h.at))
				if toServer {
					back.Write(h.b)
				} else {
					front.WriteToUDPAddrPort(h.b, *r.peer.Load())
				}
			}
		}()
	}
	for _, conn := range []*net.UDPConn{front, back} {
		conn.SetReadBuffer(16 << 20)
	}
	carry(front, true)
	carry(back, false)
	return r, front.LocalAddr().(*net.UDPAddr).AddrPort()
}

func isClosed(err error) bool {
	return err != nil && strings.Contains(err.Error(), "use of closed")
}

func all(_ bool, b []byte) [][]byte { return [][]byte{b} }

// TestDelay: over a path with delay the same happens as simulated, with delayed
// ACKs too, whose timer is longer than the RTT.
func TestDelay(t *testing.T) {
	c := segments(300)
	c.RcvrWin, c.DropList, c.SACK = 40, []uint64{60, 61, 200}, true
	r := receives()
	r.SACK, r.DelAck = true, 400*ms
	path := sim.Path{Delay: 10 * ms}
	var want, got []step
	if _, err := sim.Run(sim.Config{Sender: c, Receiver: r, Forward: path, Back: path, Observe: recording(&want)}); err != nil {
		t.Fatal(err)
	}
	server := start(t, ServeConfig{Receiver: r, Listen: ipv4})
	_, to := newRelay(t, server.Addr(), path.Delay, all)
	sent := transfer(t, SendConfig{Sender: c, To: to, Observe: recording(&got)})
	compare(t, got, want)
	if sent.Stats.MinRTT < 20*ms || sent.Receiver.Missing != 3 || sent.Receiver.AcksSent >= 300 {
		t.Errorf("%+v, %+v", sent.Stats, sent.Receiver)
	}
}

// TestStrays puts datagrams of no flow, and damaged ones, between those of one.
func TestStrays(t *testing.T) {
	for _, mode := range []Mode{Precise, Bulk} {
		t.Run(mode.String(), func(t *testing.T) {
			server := start(t, ServeConfig{Receiver: receives(), Listen: ipv4})
			var strays [2]atomic.Uint64
			_, to := newRelay(t, server.Addr(), 0, func(toServer bool, b []byte) [][]byte {
				kind, id, err := proto.Peek(b)
				if err != nil || kind != proto.TypeData && kind != proto.TypeAck {
					return [][]byte{b}
				}
				way := 0
				if toServer {
					way = 1
				}
				strays[way].Add(5)
				flow, tag, whole := slices.Clone(b), slices.Clone(b), append(slices.Clone(b), 0)
				proto.PutPrefix(flow, kind, proto.ID{Flow: id.Flow + 1, Tag: id.Tag})
				proto.PutPrefix(tag, kind, proto.ID{Flow: id.Flow, Tag: id.Tag ^ 1})
				return [][]byte{flow, tag, b, b[:len(b)-1], whole, []byte("what is this?")}
			})
			c := segments(500)
			c.RcvrWin = 50
			sent := transfer(t, SendConfig{Sender: c, To: to, Mode: mode})
			got := server.end(t)
			if st := sent.Stats; st.Una != 500 || st.Rxmts+st.Dups+st.BadAcks != 0 || sent.Receiver.Duplicates != 0 {
				t.Errorf("%+v, %+v", st, sent.Receiver)
			}
			if sent.Path.Foreign == 0 || sent.Path.Foreign > strays[0].Load() || got.Foreign != strays[1].Load() {
				t.Errorf("counted %d of %d strays to the sender, %d of %d to the receiver",
					sent.Path.Foreign, strays[0].Load(), got.Foreign, strays[1].Load())
			}
		})
	}
}

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

// TestLostGreetings loses each message of a handshake, and of the end, once.
func TestLostGreetings(t *testing.T) {
	server := start(t, ServeConfig{Receiver: receives(), Listen: ipv4})
	var mu sync.Mutex
	lost := map[proto.Type]bool{proto.TypeData: true, proto.TypeAck: true}
	_, to := newRelay(t, server.Addr(), 0, func(_ bool, b []byte) [][]byte {
		mu.Lock()
		defer mu.Unlock()
		if kind, _, _ := proto.Peek(b); !lost[kind] {
			lost[kind] = true
			return nil
		}
		return [][]byte{b}
	})
	sent := transfer(t, SendConfig{Sender: segments(10), To: to})
	mu.Lock()
	defer mu.Unlock()
	if f := server.end(t); f.Report.Received != 10 || sent.Receiver != f.Report || len(lost) != 8 {
		t.Errorf("%+v; lost %v", f, lost)
	}
	if len(server.finished) > 0 {
		t.Error("an opening that came twice made two flows")
	}
}

// TestGap: segments leave on their schedule, never before it.
func TestGap(t *testing.T) {
	server := start(t, ServeConfig{Receiver: receives(), Listen: ipv4})
	c := segments(200)
	c.Gap, c.InitSegs = 2*ms, 100
	var left []time.Duration
	sent := transfer(t, SendConfig{Sender: c, To: server.Addr(), Observe: func(e *proto.Event) {
		if e.Kind == proto.Xmt {
			left = append(left, e.At)
		}
	}})
	for i, at := range left {
		if at < time.Duration(i)*c.Gap {
			t.Errorf("segment %d leaves at %v", i, at)
		}
	}
	if sent.Late.TotalCount() == 0 || sent.Late.Min() < 0 {
		t.Errorf("%d segments waited", sent.Late.TotalCount())
	}
	if _, err := Send(t.Context(), SendConfig{Sender: c, Token: token, To: server.Addr(), Mode: Bulk}); err == nil || !strings.Contains(err.Error(), "needs the mode precise") {
		t.Error(err)
	}
}

func TestStart(t *testing.T) {
	server := start(t, ServeConfig{Receiver: receives(), Listen: ipv4})
	at := time.Now().Add(300 * ms)
	sent := transfer(t, SendConfig{Sender: segments(10), To: server.Addr(), Start: at})
	if sent.Started.UnixNano() < at.UnixNano() {
		t.Errorf("started %v before its time", at.Sub(sent.Started))
	}
}

// TestNothingAllocated compares what a long transfer allocates with a short one.
func TestNothingAllocated(t *testing.T) {
	for _, mode := range []Mode{Precise, Bulk} {
		t.Run(mode.String(), func(t *testing.T) {
			server := start(t, ServeConfig{Receiver: receives(), Listen: ipv4})
			allocated := func(n uint64) uint64 {
				c := segments(n)
				c.DropList, c.Timeout = []uint64{100, 200, n - 1}, 50*ms
				recorder := &Recorder{Samples: func(*Sample) error { return nil }, Trace: nowhere{}, Events: nowhere{}}
				recorder.Start()
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				transfer(t, SendConfig{
					Sender: c, To: server.Addr(), Mode: mode, Observe: recorder.Observe, Sample: recorder.Sample, Interval: ms,
				})
				runtime.ReadMemStats(&after)
				if _, err := recorder.Close(); err != nil {
					t.Error(err)
				}
				return after.Mallocs - before.Mallocs
			}
			allocated(1000) // what is made once
			short, long := allocated(1000), allocated(50000)
			if long > short+100 { // the runtime's own
				t.Errorf("%d allocations for 1000 segments, %d for 50000", short, long)
			}
		})
	}
}

type nowhere struct{}

func (nowhere) Write(b []byte) (int, error) { return len(b), nil }

// BenchmarkTransfer has a segment as its operation, with both ends in one process.
func BenchmarkTransfer(b *testing.B) {
	for _, mode := range []Mode{Precise, Bulk} {
		b.Run(mode.String(), func(b *testing.B) {
			server := start(b, ServeConfig{Receiver: receives(), Listen: ipv4})
			c := segments(uint64(b.N))
			c.RcvrWin, c.InitSegs, c.MaxTime = 2000, 2000, 0
			b.SetBytes(int64(c.MSS))
			transfer(b, SendConfig{Sender: c, To: server.Addr(), Mode: mode})
		})
	}
}
