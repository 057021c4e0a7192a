package live

import (
	"bytes"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"dumbbell/traffic/socket"
	"dumbbell/transports/atou/config"
	"dumbbell/transports/atou/handshake"
	"dumbbell/transports/atou/proto"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// pair makes two sockets connected with each other.
func pair(t testing.TB) (a, b int) {
	t.Helper()
	var fds [2]int
	var at [2]netip.AddrPort
	for i := range fds {
		fd, err := socket.Open(ipv4)
		if err == nil {
			t.Cleanup(func() { unix.Close(fd) })
			err = unix.Bind(fd, socket.Sockaddr(netip.AddrPortFrom(ipv4, 0)))
		}
		if err == nil {
			_, err = socket.SetReceiveBuffer(fd, 16<<20)
		}
		if err == nil {
			at[i], err = socket.LocalAddr(fd)
		}
		if err != nil {
			t.Fatal(err)
		}
		fds[i] = fd
	}
	for i, fd := range fds {
		if err := unix.Connect(fd, socket.Sockaddr(at[1-i])); err != nil {
			t.Fatal(err)
		}
	}
	return fds[0], fds[1]
}

// TestBoxes: datagrams of any sizes arrive as they were sent, in trains or not.
func TestBoxes(t *testing.T) {
	from, to := pair(t)
	rapid.Check(t, func(t *rapid.T) {
		mode := Mode(rapid.IntRange(0, 1).Draw(t, "mode"))
		joined := rapid.Bool().Draw(t, "joined")
		noGSO := rapid.Bool().Draw(t, "without GSO")
		out := newOutbox(from, 200, mode)
		out.GSO = out.GSO && !noGSO
		in, err := newInbox(to, &clock{time.Now()}, 4, 200, joined)
		if err != nil {
			t.Fatal(err)
		}
		var want, got [][]byte
		send := func() {
			if err := out.Send(); err != nil {
				t.Fatal(err)
			}
			if out.Len() != 0 || out.Full() {
				t.Fatal("a train that has left is still there")
			}
		}
		for i, size := range rapid.SliceOfN(rapid.IntRange(1, 200), 1, 150).Draw(t, "sizes") {
			if i > 0 && rapid.Bool().Draw(t, "again") { // runs of one size
				size = len(want[i-1])
			}
			b := bytes.Repeat([]byte{byte(i)}, size)
			want = append(want, b)
			if out.Full() {
				send()
			}
			copy(out.Place(), b)
			if !out.Add(size) {
				send()
				copy(out.Place(), b)
				if !out.Add(size) {
					t.Fatal("an empty train takes nothing")
				}
			}
		}
		send()
		for {
			ready, err := in.fill()
			if err != nil {
				t.Fatal(err)
			}
			if !ready {
				break
			}
			for b, at, ok := in.next(); ok; b, at, ok = in.next() {
				if at > in.clock.now() {
					t.Fatalf("arrives at %v, which is to come", at)
				}
				got = append(got, bytes.Clone(b))
			}
		}
		if len(got) != len(want) {
			t.Fatalf("%d of %d datagrams", len(got), len(want))
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("datagram %d of %d bytes is %d bytes", i, len(want[i]), len(got[i]))
			}
		}
	})
}

// TestFragmentedTrain: datagrams that have to be fragmented cannot be a train;
// they leave one by one, and no train is tried again.
func TestFragmentedTrain(t *testing.T) {
	runtime.LockOSThread() // and never unlocked: the thread, which is in a network of its own, ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skip("making a network namespace: ", err)
	}
	fd, err := socket.Open(ipv4)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err == nil {
		lo.SetUint32(1500)
		err = unix.IoctlIfreq(fd, unix.SIOCSIFMTU, lo)
	}
	if err == nil {
		lo.SetUint16(unix.IFF_UP)
		err = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
	}
	if err != nil {
		t.Fatal(err)
	}
	from, to := pair(t)
	out := newOutbox(from, 4000, Bulk)
	in, err := newInbox(to, &clock{time.Now()}, 8, 4001, false)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		out.Place()[3999] = byte(i)
		out.Add(4000)
	}
	if err := out.Send(); err != nil || out.GSO || out.Len() != 0 {
		t.Fatalf("%v, without trains %v, %d are left", err, !out.GSO, out.Len())
	}
	for i := range 3 {
		if i == 0 {
			if ready, err := in.fill(); !ready {
				t.Fatal("nothing has come: ", err)
			}
		}
		if b, _, ok := in.next(); !ok || len(b) != 4000 || b[3999] != byte(i) {
			t.Errorf("datagram %d has %d bytes", i, len(b))
		}
	}
}

// TestRefused: a train that the kernel has no room for stays until it has.
func TestRefused(t *testing.T) {
	from, to := pair(t)
	out := newOutbox(from, 100, Bulk)
	if err := unix.Connect(from, &unix.SockaddrInet4{Port: int(freePort(t)), Addr: ipv4.As4()}); err != nil { // where nobody is
		t.Fatal(err)
	}
	out.Add(100)
	if err := out.Send(); err != nil { // the first is told later
		t.Fatal(err)
	}
	out.Add(100)
	out.Add(100)
	if err := await(from, soon); !soft(err) && err != nil {
		t.Fatal(err)
	} else if err == nil {
		if err := out.Send(); !soft(err) {
			t.Fatalf("%v, not that nobody is there", err)
		}
	}
	if out.Len() != 2 {
		t.Errorf("%d datagrams are left of 2", out.Len())
	}
	_ = to
}

func TestRing(t *testing.T) {
	const n = 100000
	r := newRing[uint64](64)
	var got []uint64
	done := make(chan bool)
	go func() {
		for i := range uint64(n) {
			r.put(&i)
		}
		close(done)
	}()
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		default:
		}
		r.each(func(v *uint64) { got = append(got, *v) })
	}
	for i := 1; i < len(got); i++ {
		if got[i] <= got[i-1] {
			t.Fatalf("%d after %d", got[i], got[i-1])
		}
	}
	if uint64(len(got))+r.lost.Load() != n || len(got) < 64 {
		t.Errorf("%d taken, %d lost of %d", len(got), r.lost.Load(), n)
	}
}

// FuzzConn: whatever comes to a flow's socket, only the flow's own segments and
// its end make a difference, and all else is counted.
func FuzzConn(f *testing.F) {
	c := config.DefaultSender()
	c.MSS = 64
	id := proto.ID{Flow: 7, Tag: 0x01020304}
	data, ack := make([]byte, c.MSS), make([]byte, proto.MaxAckBytes)
	(&proto.Data{ID: id, Seg: 0, Bytes: c.MSS}).Encode(data)
	n := (&proto.Ack{ID: id}).Encode(ack)
	nonce := handshake.Nonce{1}
	f.Add(data)
	f.Add(data[:40])
	f.Add(ack[:n])
	f.Add((&proto.Fin{ID: id}).Append(nil))
	f.Add((&proto.Report{ID: id}).Append(nil))
	f.Add(token.AppendHello(nil, nonce))
	f.Add(token.AppendAnswer(nil, &handshake.Answer{Nonce: nonce, ID: id}))
	server, err := NewServer(ServeConfig{Receiver: receives(), Token: token, Listen: ipv4})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { server.Close() })
	to, from := pair(f)
	peer, err := socket.LocalAddr(from)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		in, err := newInbox(to, &clock{time.Now()}, 1, c.MSS+1, false)
		if err != nil {
			t.Fatal(err)
		}
		before := server.Foreign()
		var replies int
		conn := &conn{
			server: server, from: peer, fd: to, in: in, out: newOutbox(to, proto.MaxAckBytes, Precise),
			flow: Flow{ID: id, Sender: c}, receiver: proto.NewReceiver(server.config.Receiver, c.RcvrWin),
			greeter: greeter{server: server, from: peer, reply: func(b []byte) { replies++ }},
		}
		conn.take(b, time.Second)
		kind, got, err := proto.Peek(b)
		var d proto.Data
		var fin proto.Fin
		switch {
		case err == nil && got == id && kind == proto.TypeData && d.Decode(b) == nil && d.Bytes == len(b) && len(b) == c.MSS:
			if st := conn.receiver.Stats(); st.Arrived+st.Beyond != 1 {
				t.Errorf("%+v", st)
			}
		case fin.Decode(b) == nil && fin.ID == id:
			if conn.receiver != nil || replies != 1 {
				t.Error("its end does not end the flow")
			}
		default:
			if _, err := token.ReadHello(b); err == nil {
				if replies != 1 {
					t.Errorf("%d answers to a hello", replies)
				}
			} else if replies > 0 || conn.finished.Foreign+server.Foreign()-before != 1 {
				t.Errorf("%d answers, counted %d and %d", replies, conn.finished.Foreign, server.Foreign()-before)
			}
			if conn.receiver == nil || conn.receiver.Stats() != (proto.ReceiverStats{}) {
				t.Error("it makes a difference")
			}
		}
	})
}

// TestSockaddr: addresses survive, link-local ones with their interface.
func TestSockaddr(t *testing.T) {
	interfaces, err := net.Interfaces()
	if err != nil || len(interfaces) == 0 {
		t.Skip("no interfaces")
	}
	for _, a := range []string{"10.0.0.1:5", "[2001:db8::1]:65535", "[fe80::1%" + interfaces[0].Name + "]:9"} {
		want := netip.MustParseAddrPort(a)
		if got := socket.AddrPort(socket.Sockaddr(want)); got != want {
			t.Errorf("%v becomes %v", want, got)
		}
	}
}
