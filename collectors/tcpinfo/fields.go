package tcpinfo

import (
	"encoding/binary"
	"encoding/hex"

	"dumbbell/collectors/row"
)

// A Field is one member of struct tcp_info (include/uapi/linux/tcp.h).
type Field struct {
	Name   string // the kernel's name without "tcpi_", with a unit where the kernel gives none
	Offset int    // bytes from the start of the structure
	Width  int    // bytes: 1, 2, 4 or 8
	Since  int    // length of the first structure that has it: 232 is Linux 6.1, 240 is 6.2, 248 is 6.7, 280 is 6.18
	Unset  bool   // all bits set means that the kernel has no value yet
	Shift  int    // of a bit field, counted from the lowest bit
	Bits   int    // of a bit field; 0 for a member of its whole width
}

// Fields are the members that Dumbbell records, in the order in which they
// are written. Decoding, line protocol and documentation all follow this
// table. Left out are fackets and last_ack_sent, which are always 0. What a
// kernel sends beyond the last of them is kept as it came, in unknown_tail:
// from byte 276 on kernels of one length differ.
var Fields = []Field{
	{Name: "state", Offset: 0, Width: 1, Since: 232},
	{Name: "ca_state", Offset: 1, Width: 1, Since: 232},
	{Name: "retransmits", Offset: 2, Width: 1, Since: 232},
	{Name: "probes", Offset: 3, Width: 1, Since: 232},
	{Name: "backoff", Offset: 4, Width: 1, Since: 232},
	{Name: "options", Offset: 5, Width: 1, Since: 232},
	{Name: "snd_wscale", Offset: 6, Width: 1, Since: 232, Bits: 4},
	{Name: "rcv_wscale", Offset: 6, Width: 1, Since: 232, Shift: 4, Bits: 4},
	{Name: "delivery_rate_app_limited", Offset: 7, Width: 1, Since: 232, Bits: 1},
	{Name: "fastopen_client_fail", Offset: 7, Width: 1, Since: 232, Shift: 1, Bits: 2},
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
	{Name: "max_pacing_rate_Bps", Offset: 112, Width: 8, Since: 232, Unset: true},
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
	{Name: "received_ce", Offset: 248, Width: 4, Since: 280},
	{Name: "delivered_e1_bytes", Offset: 252, Width: 4, Since: 280},
	{Name: "delivered_e0_bytes", Offset: 256, Width: 4, Since: 280},
	{Name: "delivered_ce_bytes", Offset: 260, Width: 4, Since: 280},
	{Name: "received_e1_bytes", Offset: 264, Width: 4, Since: 280},
	{Name: "received_e0_bytes", Offset: 268, Width: 4, Since: 280},
	{Name: "received_ce_bytes", Offset: 272, Width: 4, Since: 280},
}

// knownLength is where the last field ends.
const knownLength = 276

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
func (i Info) Value(f Field) (uint64, bool) { return i.value(&f) }

func (i Info) value(f *Field) (uint64, bool) {
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
	if f.Bits > 0 {
		return v >> f.Shift & (1<<f.Bits - 1), true
	}
	return v, !f.Unset || v != unset
}

// memoryFields are the words of INET_DIAG_SKMEMINFO (include/uapi/linux/sock_diag.h).
var memoryFields = [...]string{
	"skmem_rmem_alloc_bytes", "skmem_rcvbuf_bytes", "skmem_wmem_alloc_bytes", "skmem_sndbuf_bytes", "skmem_fwd_alloc_bytes",
	"skmem_wmem_queued_bytes", "skmem_optmem_bytes", "skmem_backlog_bytes", "skmem_drops",
}

// What of a row is always there comes first: members of tcp_info up to the
// length that the kernel sent, then words of memory, then the rest.
var (
	settled, settledKeys     = fieldKeys(false)
	unsettled, unsettledKeys = fieldKeys(true) // those that may have no value yet
	memoryKeys               = keys(memoryFields[:]...)
	otherKeys                = keys("rqueue_bytes", "wqueue_bytes", "timer", "timer_expires_ms", "cookie")
)

func keys(names ...string) (all []row.Key) {
	for _, name := range names {
		all = append(all, row.NewKey(name))
	}
	return all
}

func fieldKeys(unset bool) (fields []Field, all []row.Key) {
	for _, f := range Fields {
		if f.Unset == unset {
			fields, all = append(fields, f), append(all, row.NewKey(f.Name))
		}
	}
	return fields, all
}

// AddFields writes the members that this kernel has to a row.
func (i Info) AddFields(rows *row.Rows) {
	var values [128]int64 // more than there are fields
	n := 0
	for k := range settled {
		v, ok := i.value(&settled[k])
		if !ok {
			break // they are in order of their offset
		}
		values[n] = int64(v)
		n++
	}
	rows.Ints(settledKeys[:n], values[:])
	for k := range unsettled {
		if v, ok := i.value(&unsettled[k]); ok {
			values[0] = int64(v)
			rows.Ints(unsettledKeys[k:k+1], values[:])
		}
	}
	if len(i) > knownLength {
		for _, b := range i[knownLength:] {
			if b != 0 {
				rows.String("unknown_tail", hex.EncodeToString(i[knownLength:]))
				break
			}
		}
	}
}

// AddFields writes all that is known of a socket to a row.
func (s *Sample) AddFields(rows *row.Rows) {
	s.Info.AddFields(rows)
	var values [len(memoryFields)]int64
	n := 0
	for ; n < len(memoryKeys) && 4*n+4 <= len(s.memory); n++ {
		values[n] = int64(int32(binary.NativeEndian.Uint32(s.memory[4*n:])))
	}
	rows.Ints(memoryKeys[:n], values[:])
	values[0], values[1] = int64(s.ReceiveQueue), int64(s.SendQueue)
	values[2], values[3], values[4] = int64(s.Timer), int64(s.TimerExpires), int64(s.Cookie)
	rows.Ints(otherKeys, values[:])
	if s.CongestionControl != "" {
		rows.String("congestion_control", s.CongestionControl)
	}
	s.addControl(rows)
}

// addControl writes what the congestion control tells of itself
// (include/uapi/linux/inet_diag.h). Gains of BBR are multiples, not 1/256.
func (s *Sample) addControl(rows *row.Rows) {
	word := func(i int) int64 { return int64(binary.NativeEndian.Uint32(s.control[4*i:])) }
	half := func(i int) int64 { return int64(binary.NativeEndian.Uint16(s.control[2*i:])) }
	switch {
	case s.controlKind == attrBBRInfo && len(s.control) >= 20:
		rows.Int("bbr_bw_Bps", word(0)|word(1)<<32)
		rows.Int("bbr_min_rtt_us", word(2))
		rows.Float("bbr_pacing_gain", float64(word(3))/256)
		rows.Float("bbr_cwnd_gain", float64(word(4))/256)
	case s.controlKind == attrVegasInfo && len(s.control) >= 16:
		rows.Int("vegas_enabled", word(0))
		rows.Int("vegas_rttcnt", word(1))
		rows.Int("vegas_rtt_us", word(2))
		rows.Int("vegas_minrtt_us", word(3))
	case s.controlKind == attrDCTCPInfo && len(s.control) >= 16:
		rows.Int("dctcp_enabled", half(0))
		rows.Int("dctcp_ce_state", half(1))
		rows.Int("dctcp_alpha", word(1))
		rows.Int("dctcp_ab_ecn", word(2))
		rows.Int("dctcp_ab_tot", word(3))
	}
}
