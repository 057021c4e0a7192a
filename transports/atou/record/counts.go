package record

import (
	"time"

	"dumbbell/transports/atou/proto"
)

// SenderCounts are the counts of a sender for JSON, by the names of the summary.
type SenderCounts struct {
	PktsIn   uint64        `json:"pkts_in"`
	PktsOut  uint64        `json:"pkts_out"`
	Enobufs  uint64        `json:"enobufs"`
	Rxmts    uint64        `json:"rxmts"`
	Dup3s    uint64        `json:"dup3s"`
	Packs    uint64        `json:"packs"`
	Timeouts uint64        `json:"timeouts"`
	Dups     uint64        `json:"dups"`
	BadAcks  uint64        `json:"badacks"`
	MaxAck   uint64        `json:"maxack"`
	MaxBurst uint64        `json:"maxburst"`
	RTTs     uint64        `json:"rtt_samples"`
	MinRTT   time.Duration `json:"min_rtt_ns"`
	MaxRTT   time.Duration `json:"max_rtt_ns"`
	AvgRTT   time.Duration `json:"avg_rtt_ns"`
	SRTT     time.Duration `json:"srtt_ns"`
	RTTVar   time.Duration `json:"rttvar_ns"`
	SndNxt   uint64        `json:"snd_nxt"`
	SndUna   uint64        `json:"snd_una"`
	SndMax   uint64        `json:"snd_max"`
	SndCwnd  int           `json:"snd_cwnd"`
	Ssthresh int           `json:"ssthresh,omitempty"` // absent: infinite
}

// CountSender takes them from a sender's statistics.
func CountSender(st *proto.Stats) SenderCounts {
	c := SenderCounts{
		PktsIn: st.In, PktsOut: st.Out, Enobufs: st.Enobufs, Rxmts: st.Rxmts, Dup3s: st.Dup3s, Packs: st.Packs,
		Timeouts: st.Timeouts, Dups: st.Dups, BadAcks: st.BadAcks, MaxAck: st.MaxAck, MaxBurst: st.MaxBurst,
		RTTs: st.RTTs, MinRTT: st.MinRTT, MaxRTT: st.MaxRTT, AvgRTT: st.AvgRTT(), SRTT: st.SRTT, RTTVar: st.RTTVar,
		SndNxt: st.Nxt, SndUna: st.Una, SndMax: st.Max, SndCwnd: st.Cwnd,
	}
	if st.Ssthresh < proto.InfiniteSsthresh {
		c.Ssthresh = st.Ssthresh
	}
	return c
}

// ReceiverCounts are those of a receiver.
type ReceiverCounts struct {
	Arrived      uint64        `json:"arrived_segments"`
	Received     uint64        `json:"received_segments"` // without duplicates
	Bytes        uint64        `json:"received_bytes"`
	AcksSent     uint64        `json:"acks_sent"`
	Missing      uint64        `json:"missing_segments"` // when a later one arrived: lost, or late
	Duplicates   uint64        `json:"duplicate_segments"`
	Displacement uint64        `json:"max_displacement"`
	Beyond       uint64        `json:"beyond_window"`
	Receiving    time.Duration `json:"receiving_ns"` // from the first to the last segment
}

// CountReceiver takes them from a receiver's statistics.
func CountReceiver(r *proto.ReceiverStats) ReceiverCounts {
	return ReceiverCounts{
		r.Arrived, r.Received, r.Bytes, r.AcksSent, r.Missing, r.Duplicates, r.Displacement, r.Beyond, r.Elapsed,
	}
}
