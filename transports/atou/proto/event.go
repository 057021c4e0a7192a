package proto

import (
	"math"
	"time"
)

// A Kind is what a sender did or saw.
type Kind uint8

const (
	Xmt        Kind = iota // a first transmission
	Rxt                    // a retransmission
	Drop                   // a first transmission that the drop list suppresses
	AckIn                  // an ACK has been taken
	DupRxmit               // enough duplicate ACKs: the first retransmission of a recovery
	PackRxmit              // a further retransmission of a recovery
	TimerRxmit             // a time-out
	BadAck                 // an ACK below una, or of what was never sent
)

// An Event tells what a sender did. AckIn has the values after the ACK, all
// others those before the reduction or the transmission.
type Event struct {
	Kind     Kind
	At       time.Duration // of the sender's clock
	Seg      uint64        // segment; of AckIn and BadAck the cumulative number
	RTT      time.Duration // of AckIn
	Una      uint64        // first segment that is not acknowledged
	Nxt      uint64        // next segment to send
	Max      uint64        // one above the highest segment sent
	Recover  uint64        // where the recovery ends
	Cwnd     int           // segments
	Ssthresh int           // segments; InfiniteSsthresh if there is none
}

// InfiniteSsthresh is the ssthresh of a sender that has none yet.
const InfiniteSsthresh = 1<<31 - 1

// Stats are a sender's counts and state.
type Stats struct {
	In       uint64 // ACKs
	Out      uint64 // segments, retransmissions and those of the drop list included
	Enobufs  uint64 // segments that the kernel refused
	Rxmts    uint64 // retransmissions of any cause
	Dup3s    uint64 // recoveries begun by duplicate ACKs
	Packs    uint64 // further retransmissions of recoveries
	Timeouts uint64
	Dups     uint64 // duplicate ACKs
	BadAcks  uint64
	MaxAck   uint64 // most segments that one ACK acknowledged
	MaxBurst uint64 // most segments sent at one ACK or time-out

	RTTs           uint64 // samples: ACKs that are not bad
	MinRTT, MaxRTT time.Duration
	LastRTT        time.Duration
	SumRTT         int64         // µs: days of a fast transfer are too many ns
	SRTT, RTTVar   time.Duration // RFC 6298

	Nxt, Una, Max  uint64
	Cwnd, Ssthresh int // segments

	State     State
	RTO       time.Duration // of the next time-out, its backoff included
	Backoff   int           // time-outs since the last new ACK
	Delivered uint64        // segments acknowledged, also those that only SACK blocks name
	Sacked    uint64        // of the outstanding segments, by the scoreboard
	Lost      uint64
	Resent    uint64
}

// A State is where a sender stands; the numbers are those of the kernel's
// enum tcp_ca_state, whose CWR is not here.
type State uint8

const (
	Open     State = 0
	Disorder State = 1 // duplicate ACKs or SACKed segments, but too few to mean a loss
	Recovery State = 3 // after duplicate ACKs that did
	Loss     State = 4 // after a time-out, until all that was outstanding at it is acknowledged
)

// AvgRTT is the mean of all RTTs, 0 before the first.
func (s *Stats) AvgRTT() time.Duration {
	if s.RTTs == 0 {
		return 0
	}
	return time.Duration(math.Round(float64(s.SumRTT) / float64(s.RTTs) * float64(time.Microsecond)))
}

// LongRTT is what few RTTs exceed: a time-out has to (RFC 6298). 0 without samples.
func (s *Stats) LongRTT() time.Duration { return longRTT(s.SRTT, s.RTTVar) }
