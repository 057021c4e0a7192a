package tcpinfo

import (
	"encoding/binary"

	"github.com/influxdata/line-protocol/v2/lineprotocol"
)

// A Field is one member of struct tcp_info (include/uapi/linux/tcp.h).
type Field struct {
	Name   string // the kernel's name without "tcpi_", with a unit where the kernel gives none
	Offset int    // bytes from the start of the structure
	Width  int    // bytes: 1, 2, 4 or 8
	Since  int    // length of the first structure that has it: 232 is Linux 6.1, 240 is 6.2, 248 is 6.7
	Unset  bool   // all bits set means that the kernel has no value yet
}

// Fields are the members that Dumbbell records, in the order in which they
// are written. Decoding, line protocol and documentation all follow this
// table. Members later than those of Linux 6.12 (248 bytes) are not recorded.
var Fields = []Field{
	{Name: "state", Offset: 0, Width: 1, Since: 232},
	{Name: "ca_state", Offset: 1, Width: 1, Since: 232},
	{Name: "retransmits", Offset: 2, Width: 1, Since: 232},
	{Name: "backoff", Offset: 4, Width: 1, Since: 232},
	{Name: "options", Offset: 5, Width: 1, Since: 232},
	{Name: "rto_us", Offset: 8, Width: 4, Since: 232},
	{Name: "ato_us", Offset: 12, Width: 4, Since: 232},
	{Name: "snd_mss", Offset: 16, Width: 4, Since: 232},
	{Name: "rcv_mss", Offset: 20, Width: 4, Since: 232},
	{Name: "unacked", Offset: 24, Width: 4, Since: 232},
	{Name: "sacked", Offset: 28, Width: 4, Since: 232},
	{Name: "lost", Offset: 32, Width: 4, Since: 232},
	{Name: "retrans", Offset: 36, Width: 4, Since: 232},
	{Name: "last_data_sent_ms", Offset: 44, Width: 4, Since: 232},
	{Name: "last_data_recv_ms", Offset: 52, Width: 4, Since: 232},
	{Name: "last_ack_recv_ms", Offset: 56, Width: 4, Since: 232},
	{Name: "pmtu", Offset: 60, Width: 4, Since: 232},
	{Name: "rcv_ssthresh", Offset: 64, Width: 4, Since: 232},
	{Name: "srtt_us", Offset: 68, Width: 4, Since: 232},
	{Name: "rttvar_us", Offset: 72, Width: 4, Since: 232},
	{Name: "snd_ssthresh", Offset: 76, Width: 4, Since: 232},
	{Name: "snd_cwnd", Offset: 80, Width: 4, Since: 232},
	{Name: "advmss", Offset: 84, Width: 4, Since: 232},
	{Name: "reordering", Offset: 88, Width: 4, Since: 232},
	{Name: "rcv_rtt_us", Offset: 92, Width: 4, Since: 232},
	{Name: "rcv_space", Offset: 96, Width: 4, Since: 232},
	{Name: "total_retrans", Offset: 100, Width: 4, Since: 232},
	{Name: "pacing_rate_Bps", Offset: 104, Width: 8, Since: 232, Unset: true},
	{Name: "bytes_acked", Offset: 120, Width: 8, Since: 232},
	{Name: "bytes_received", Offset: 128, Width: 8, Since: 232},
	{Name: "segs_out", Offset: 136, Width: 4, Since: 232},
	{Name: "segs_in", Offset: 140, Width: 4, Since: 232},
	{Name: "notsent_bytes", Offset: 144, Width: 4, Since: 232},
	{Name: "min_rtt_us", Offset: 148, Width: 4, Since: 232, Unset: true},
	{Name: "data_segs_in", Offset: 152, Width: 4, Since: 232},
	{Name: "data_segs_out", Offset: 156, Width: 4, Since: 232},
	{Name: "delivery_rate_Bps", Offset: 160, Width: 8, Since: 232},
	{Name: "busy_time_us", Offset: 168, Width: 8, Since: 232},
	{Name: "rwnd_limited_us", Offset: 176, Width: 8, Since: 232},
	{Name: "sndbuf_limited_us", Offset: 184, Width: 8, Since: 232},
	{Name: "delivered", Offset: 192, Width: 4, Since: 232},
	{Name: "delivered_ce", Offset: 196, Width: 4, Since: 232},
	{Name: "bytes_sent", Offset: 200, Width: 8, Since: 232},
	{Name: "bytes_retrans", Offset: 208, Width: 8, Since: 232},
	{Name: "dsack_dups", Offset: 216, Width: 4, Since: 232},
	{Name: "reord_seen", Offset: 220, Width: 4, Since: 232},
	{Name: "rcv_ooopack", Offset: 224, Width: 4, Since: 232},
	{Name: "snd_wnd", Offset: 228, Width: 4, Since: 232},
	{Name: "rcv_wnd", Offset: 232, Width: 4, Since: 240},
	{Name: "rehash", Offset: 236, Width: 4, Since: 240},
	{Name: "total_rto", Offset: 240, Width: 2, Since: 248},
	{Name: "total_rto_recoveries", Offset: 242, Width: 2, Since: 248},
	{Name: "total_rto_time_ms", Offset: 244, Width: 4, Since: 248},
}

// FieldByName returns a field of the table, and panics for a name that is not
// in it: names are constants of the program.
func FieldByName(name string) Field {
	for _, f := range Fields {
		if f.Name == name {
			return f
		}
	}
	panic("tcpinfo: no field " + name)
}

// Info is struct tcp_info as the kernel sent it: its length tells which
// fields the kernel knows.
type Info []byte

// Value returns a field, and false where this kernel does not have it or has
// no value for it yet.
func (i Info) Value(f Field) (uint64, bool) {
	if f.Offset+f.Width > len(i) {
		return 0, false
	}
	b := i[f.Offset : f.Offset+f.Width]
	var v, unset uint64
	switch f.Width {
	case 1:
		v, unset = uint64(b[0]), 1<<8-1
	case 2:
		v, unset = uint64(binary.NativeEndian.Uint16(b)), 1<<16-1
	case 4:
		v, unset = uint64(binary.NativeEndian.Uint32(b)), 1<<32-1
	case 8:
		v, unset = binary.NativeEndian.Uint64(b), 1<<64-1
	}
	return v, !f.Unset || v != unset
}

// AddFields writes the fields of a sample to a line that already has its
// measurement and tags. Integers are signed because InfluxDB 1 has no others.
func (s *Sample) AddFields(line *lineprotocol.Encoder) {
	for _, f := range Fields {
		if v, ok := s.Info.Value(f); ok {
			line.AddField(f.Name, lineprotocol.IntValue(int64(v)))
		}
	}
	if name, ok := lineprotocol.StringValue(s.CongestionControl); ok && s.CongestionControl != "" {
		line.AddField("congestion_control", name)
	}
}
