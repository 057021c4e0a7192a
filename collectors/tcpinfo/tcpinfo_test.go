package tcpinfo

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"dumbbell/collectors/clock"
	"dumbbell/collectors/row"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

var record = flag.Bool("record", false, "record a reply of this machine's kernel into testdata, and what it decodes to")

// recorded is the tuple of the reply in testdata, which came from Linux 6.18.
var recorded = Tuple{netip.MustParseAddrPort("127.0.0.1:47001"), netip.MustParseAddrPort("127.0.0.1:47002")}

const recordedReply = "testdata/reply-6.18.bin"

func TestRecord(t *testing.T) {
	if !*record {
		t.Skip("only with -record")
	}
	listener, err := net.Listen("tcp4", recorded.Remote.String())
	check(t, err)
	defer listener.Close()
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(recorded.Local)}
	client, err := dialer.Dial("tcp4", recorded.Remote.String())
	check(t, err)
	defer client.Close()
	server, err := listener.Accept()
	check(t, err)
	defer server.Close()
	setCongestionControl(t, client, "bbr")
	exchange(t, client, server, 100_000)
	c := dial(t)
	check(t, c.Get(TCP, recorded, new(Sample)))
	check(t, os.WriteFile(recordedReply, c.replies[headerLength:c.messages[0].length], 0o644))
}

// infoLengths are those of Linux 6.1, 6.2, 6.12 and 6.18.
var infoLengths = map[string]int{"6.1": 232, "6.2": 240, "6.12": 248, "6.18": 280}

// reply returns the recorded reply as a kernel with a shorter struct tcp_info
// would have sent it.
func reply(t testing.TB, infoLength int) []byte {
	t.Helper()
	b, err := os.ReadFile(recordedReply)
	check(t, err)
	out := append([]byte(nil), b[:messageLength]...)
	attributes, err := netlink.UnmarshalAttributes(b[messageLength:])
	check(t, err)
	for i, a := range attributes {
		if a.Type == attrInfo {
			attributes[i].Data = a.Data[:infoLength]
			attributes[i].Length = uint16(4 + infoLength)
		}
	}
	tail, err := netlink.MarshalAttributes(attributes)
	check(t, err)
	return append(out, tail...)
}

func line(t testing.TB, s *Sample) string {
	t.Helper()
	rows := newRows(t)
	rows.Begin(row.NewSeries("tcp_info", nil))
	s.AddFields(rows)
	rows.End(time.Now())
	return string(rows.Bytes())
}

func TestDecodeRecorded(t *testing.T) {
	const to61 = "tcp_info state=1i,ca_state=0i,retransmits=0i,probes=0i,backoff=0i,options=7i,snd_wscale="
	for kernel, length := range infoLengths {
		t.Run(kernel, func(t *testing.T) {
			var s Sample
			check(t, s.decode(reply(t, length)))
			if s.Tuple != recorded || s.State != Established || s.CongestionControl != "bbr" || len(s.Info) != length || s.Cookie == 0 {
				t.Fatalf("%v, state %d, congestion control %q, %d bytes, cookie %d", s.Tuple, s.State, s.CongestionControl, len(s.Info), s.Cookie)
			}
			got := line(t, &s)
			if !strings.HasPrefix(got, to61) {
				t.Errorf("line begins otherwise than %q: %s", to61, got)
			}
			for name, want := range map[string]bool{
				"bytes_sent=100000i": true, "bytes_acked=100001i": true, "snd_wnd=": true, `congestion_control="bbr"`: true,
				"skmem_drops=0i": true, "skmem_rcvbuf_bytes=": true, "bbr_pacing_gain=": true, "bbr_bw_Bps=": true,
				"rcv_wnd=": length >= 240, "rehash=": length >= 240, "total_rto=": length >= 248, "total_rto_time_ms=": length >= 248,
				"received_ce=": length >= 280, "received_ce_bytes=": length >= 280, "unknown_tail=": false,
			} {
				if strings.Contains(got, name) != want {
					t.Errorf("has %s: %v, want %v: %s", name, !want, want, got)
				}
			}
		})
	}
}

func TestDecodeRejects(t *testing.T) {
	good := reply(t, 248)
	for name, b := range map[string][]byte{"empty": {}, "short header": good[:70], "cut attribute": good[:messageLength+20]} {
		if err := new(Sample).decode(b); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

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

// TestUnknownTail: what a later kernel adds is kept.
func TestUnknownTail(t *testing.T) {
	s := Sample{Info: append(make(Info, knownLength), 0, 0, 0, 0, 1, 0xff)}
	if got := line(t, &s); !strings.Contains(got, `unknown_tail="0000000001ff"`) {
		t.Error(got)
	}
}

func TestUnsetIsAbsent(t *testing.T) {
	info := make(Info, 232)
	pacing, minRTT := FieldByName("pacing_rate_Bps"), FieldByName("min_rtt_us")
	for i := range 8 {
		info[pacing.Offset+i] = 0xff
	}
	if v, ok := info.Value(pacing); ok {
		t.Errorf("unlimited pacing rate reads %d", v)
	}
	if v, ok := info.Value(minRTT); !ok || v != 0 {
		t.Errorf("min_rtt_us of 0 reads %d, %v", v, ok)
	}
}

func TestFieldsDoNotOverlap(t *testing.T) {
	end, names := 0, make(map[string]bool)
	for _, f := range Fields {
		bits := f.Bits
		if bits == 0 {
			bits = 8 * f.Width
		}
		if begin := 8*f.Offset + f.Shift; begin < end || f.Offset%f.Width != 0 || f.Offset+f.Width > f.Since || names[f.Name] {
			t.Errorf("field %+v: the previous one ends at bit %d", f, end)
		}
		end, names[f.Name] = 8*f.Offset+f.Shift+bits, true
	}
	if end != 8*knownLength {
		t.Errorf("the last field ends at bit %d", end)
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

func FuzzDecode(f *testing.F) {
	for _, length := range infoLengths {
		f.Add(reply(f, length))
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var s Sample
		if s.decode(b) == nil {
			line(t, &s)
		}
	})
}

func TestSamplingDoesNotAllocate(t *testing.T) {
	client, _, _ := pair(t, "tcp4")
	c, tuple := dial(t), tuple(client)
	var s Sample
	if n := testing.AllocsPerRun(100, func() { check(t, c.Get(TCP, tuple, &s)) }); n != 0 {
		t.Errorf("%v allocations per sample", n)
	}
}

func BenchmarkDecode(b *testing.B) {
	data := reply(b, 248)
	var s Sample
	b.ReportAllocs()
	for b.Loop() {
		if err := s.decode(data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAddFields(b *testing.B) {
	var s Sample
	check(b, s.decode(reply(b, 280)))
	rows, series, now := newRows(b), row.NewSeries("tcp_info", row.Tags{"run": "run", "flow": "flow1"}), time.Now()
	b.ReportAllocs()
	for b.Loop() {
		rows.Reset()
		rows.Begin(series)
		s.AddFields(rows)
		rows.End(now)
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

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newRows(t testing.TB) *row.Rows {
	t.Helper()
	clock, err := clock.New()
	check(t, err)
	return row.NewRows(clock)
}

func dial(t testing.TB) *Conn {
	t.Helper()
	c, err := Dial()
	check(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// pair returns both ends of a connection over loopback. The listener stays open.
func pair(t testing.TB, network string) (client, server *net.TCPConn, listener net.Listener) {
	t.Helper()
	listener, err := net.Listen(network, map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0"}[network])
	check(t, err)
	t.Cleanup(func() { listener.Close() })
	c, err := net.Dial(network, listener.Addr().String())
	check(t, err)
	t.Cleanup(func() { c.Close() })
	s, err := listener.Accept()
	check(t, err)
	t.Cleanup(func() { s.Close() })
	return c.(*net.TCPConn), s.(*net.TCPConn), listener
}

func setCongestionControl(t testing.TB, c net.Conn, name string) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	check(t, err)
	check(t, raw.Control(func(fd uintptr) {
		err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
	}))
	check(t, err)
}

func tuple(c net.Conn) Tuple {
	return Tuple{c.LocalAddr().(*net.TCPAddr).AddrPort(), c.RemoteAddr().(*net.TCPAddr).AddrPort()}
}

// exchange sends n bytes and returns once they have been read and acknowledged.
func exchange(t testing.TB, client, server net.Conn, n int) {
	t.Helper()
	read := make(chan error, 1)
	go func() {
		_, err := io.CopyN(io.Discard, server, int64(n))
		read <- err
	}()
	_, err := client.Write(make([]byte, n))
	check(t, err)
	check(t, <-read)
	raw, err := client.(*net.TCPConn).SyscallConn()
	check(t, err)
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		var unsent int
		check(t, raw.Control(func(fd uintptr) { unsent, err = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ) }))
		check(t, err)
		if unsent == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes were not acknowledged within 5 s", unsent)
		}
	}
}
