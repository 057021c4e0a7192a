package record

import (
	"time"

	"dumbbell/collectors/row"
	"dumbbell/transports/atou/config"
	"dumbbell/transports/atou/proto"
)

// AddFields writes the state of a sender to a row, under the names that TCP's
// have (docs/data-model.md): counters are those since the start. What has no
// value yet, or needs SACK and has none, is absent.
func AddFields(rows *row.Rows, c *config.Sender, st *proto.Stats, busy time.Duration) {
	mss := int64(c.MSS)
	count := func(name string, v uint64) { rows.Int(name, int64(v)) }
	us := func(name string, d time.Duration) { rows.Int(name, d.Microseconds()) }

	rows.Int("ca_state", int64(st.State))
	rows.Int("snd_cwnd", int64(st.Cwnd))
	if st.Ssthresh < proto.InfiniteSsthresh {
		rows.Int("snd_ssthresh", int64(st.Ssthresh))
	}
	rows.Int("snd_mss", mss)
	rows.Int("snd_wnd", int64(c.RcvrWin)*mss)
	count("unacked", st.Max-st.Una)
	if c.SACK {
		count("sacked", st.Sacked)
		count("lost", st.Lost)
		count("retrans", st.Resent)
	}
	rows.Int("backoff", int64(st.Backoff))
	us("rto_us", st.RTO)
	if st.RTTs > 0 {
		us("srtt_us", st.SRTT)
		us("rttvar_us", st.RTTVar)
		us("min_rtt_us", st.MinRTT)
		us("rtt_max_us", st.MaxRTT)
		us("rtt_last_us", st.LastRTT)
		rows.Int("rtt_sum_us", st.SumRTT)
	}
	count("rtt_samples", st.RTTs)
	if c.Gap > 0 {
		rows.Int("pacing_rate_Bps", mss*int64(time.Second)/int64(c.Gap))
	}
	us("busy_time_us", busy)
	count("segs_in", st.In)
	count("data_segs_out", st.Out)
	rows.Int("bytes_sent", int64(st.Out)*mss)
	rows.Int("bytes_acked", int64(st.Una)*mss)
	rows.Int("bytes_retrans", int64(st.Rxmts)*mss)
	count("delivered", st.Delivered)
	count("total_retrans", st.Rxmts)
	count("total_rto", st.Timeouts)
	count("dup_acks_in", st.Dups)
	count("signals_fast_retransmit", st.Dup3s)
	count("bad_acks_in", st.BadAcks)
	count("enobufs", st.Enobufs)
}
