package tcpinfo

import (
	"flag"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"dumbbell/collectors/row"

	"github.com/mdlayher/netlink"
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
