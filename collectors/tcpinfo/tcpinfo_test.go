package tcpinfo

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNotFound: for a closed socket the kernel answers with the listener of
// its port, or with what is left of it in TIME_WAIT.
func TestNotFound(t *testing.T) {
	good := reply(t, 248)
	listener := bytes.Clone(good)
	clear(listener[24:40]) // no remote address
	clear(listener[6:8])   // nor port
	for name, b := range map[string][]byte{"listener": listener, "TIME_WAIT": good[:messageLength]} {
		if err := new(Sample).found(header{}, b, TCP, recorded); err != ErrNotFound {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if err := new(Sample).found(header{}, good, TCP, recorded); err != nil {
		t.Error(err)
	}
}

// TestAgainstGetsockopt compares what INET_DIAG says of a live socket with
// what its owner reads by getsockopt into golang.org/x/sys's own structure.
func TestAgainstGetsockopt(t *testing.T) {
	for _, network := range []string{"tcp4", "tcp6"} {
		t.Run(network, func(t *testing.T) {
			client, server, _ := pair(t, network)
			exchange(t, client, server, 1_000_000)
			var want *unix.TCPInfo
			setCongestionControl(t, client, "reno")
			raw, err := client.SyscallConn()
			check(t, err)
			check(t, raw.Control(func(fd uintptr) {
				want, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			}))
			check(t, err)
			c := dial(t)
			var got Sample
			check(t, c.Get(TCP, tuple(client), &got))
			if got.CongestionControl != "reno" {
				t.Errorf("congestion control %q, want reno", got.CongestionControl)
			}
			for name, want := range map[string]uint64{
				"state": uint64(want.State), "options": uint64(want.Options), "rto_us": uint64(want.Rto), "snd_mss": uint64(want.Snd_mss),
				"pmtu": uint64(want.Pmtu), "srtt_us": uint64(want.Rtt), "rttvar_us": uint64(want.Rttvar), "snd_cwnd": uint64(want.Snd_cwnd),
				"snd_ssthresh": uint64(want.Snd_ssthresh), "advmss": uint64(want.Advmss), "reordering": uint64(want.Reordering),
				"rcv_space": uint64(want.Rcv_space), "pacing_rate_Bps": want.Pacing_rate, "bytes_acked": want.Bytes_acked,
				"bytes_received": want.Bytes_received, "segs_out": uint64(want.Segs_out), "segs_in": uint64(want.Segs_in),
				"min_rtt_us": uint64(want.Min_rtt), "data_segs_out": uint64(want.Data_segs_out), "delivery_rate_Bps": want.Delivery_rate,
				"busy_time_us": want.Busy_time, "delivered": uint64(want.Delivered), "bytes_sent": want.Bytes_sent,
				"snd_wnd": uint64(want.Snd_wnd), "rcv_wnd": uint64(want.Rcv_wnd), "total_rto_time_ms": uint64(want.Total_rto_time),
			} {
				f := FieldByName(name)
				if len(got.Info) < f.Since {
					continue // an older kernel does not have it
				}
				if v, ok := got.Info.Value(f); !ok || v != want {
					t.Errorf("%s is %d (%v), getsockopt says %d", name, v, ok, want)
				}
			}
		})
	}
}

// TestReceiver reads the accepted socket by the mirrored tuple. A server that
// listens on all addresses of both families gets IPv4 in an IPv6 socket.
func TestReceiver(t *testing.T) {
	listener, err := net.Listen("tcp", ":0")
	check(t, err)
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).AddrPort().Port()
	client, err := net.Dial("tcp4", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port).String())
	check(t, err)
	defer client.Close()
	server, err := listener.Accept()
	check(t, err)
	defer server.Close()
	exchange(t, client, server, 12345)
	var s Sample
	check(t, dial(t).Get(TCP, tuple(client).Mirror(), &s))
	if v, _ := s.Info.Value(FieldByName("bytes_received")); v != 12345 {
		t.Errorf("bytes_received is %d, want 12345", v)
	}
}

// TestGone: for a closed socket the kernel answers with the listener that
// still has its port.
func TestGone(t *testing.T) {
	client, server, _ := pair(t, "tcp4")
	mirrored := tuple(client).Mirror()
	raw, err := server.SyscallConn()
	check(t, err)
	check(t, raw.Control(func(fd uintptr) { // reset, so that TIME_WAIT keeps nothing
		check(t, unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
	}))
	c := dial(t)
	var s Sample
	check(t, c.Get(TCP, mirrored, &s))
	check(t, server.Close())
	if err := c.Get(TCP, mirrored, &s); !errors.Is(err, ErrNotFound) {
		t.Errorf("Get of a closed socket: %v, state %d", err, s.State)
	}
}

func TestUDP(t *testing.T) {
	c := dial(t)
	if err := c.Available(UDP); err != nil {
		t.Skip(err)
	}
	server, err := net.ListenPacket("udp4", "127.0.0.1:0")
	check(t, err)
	defer server.Close()
	client, err := net.Dial("udp4", server.LocalAddr().String())
	check(t, err)
	tuple := Tuple{client.LocalAddr().(*net.UDPAddr).AddrPort(), client.RemoteAddr().(*net.UDPAddr).AddrPort()}
	var s Sample
	check(t, c.Get(UDP, tuple, &s))
	if s.State != Established {
		t.Errorf("state %d, want %d", s.State, Established)
	}
	check(t, client.Close())
	if err := c.Get(UDP, tuple, &s); !errors.Is(err, ErrNotFound) {
		t.Errorf("Get of a closed socket: %v", err)
	}
}

func TestAvailable(t *testing.T) {
	c := dial(t)
	check(t, c.Available(TCP))
	if err := c.Available(Protocol(254)); err == nil {
		t.Error("the kernel says that it knows protocol 254")
	}
}

func BenchmarkGet(b *testing.B) {
	client, _, _ := pair(b, "tcp4")
	c, t := dial(b), tuple(client)
	var s Sample
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Get(TCP, t, &s); err != nil {
			b.Fatal(err)
		}
	}
}
