package live

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dumbbell/transports/atou/proto"
	"dumbbell/transports/atou/sim"
)

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
