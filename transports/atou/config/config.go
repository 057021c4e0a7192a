// Package config reads the configuration of atou's two ends: lines of a key
// and its value, as the original (Dunigan's atou, ORNL 2000-2004) had them.
// What follows a # is a comment. A key that is absent has its default.
package config

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// HeaderBytes is the least mss: the header of a segment.
const HeaderBytes = 32

// MaxMSS is the largest payload that IPv4 carries in one datagram.
const MaxMSS = 65535 - 20 - 8

// Sender configures the end that sends data. Windows are in segments.
type Sender struct {
	Host  string // address of the receiver; the one key without a default
	Port  int    // UDP port of the receiver
	Debug int    // 0: summary only, 1: also time-outs, 2: also retransmissions, 3: also bad ACKs; 4: the same, of old the trace too

	MaxPkts uint64        // segments to deliver; 0: until MaxTime
	MaxTime time.Duration // the transfer ends after it, whatever is outstanding; 0: at MaxPkts

	MSS     int    // payload bytes of a datagram, header included; may exceed the path's MTU
	RcvrWin uint64 // most segments outstanding, the receiver's static window
	SndBuf  int    // bytes, SO_SNDBUF
	RcvBuf  int    // bytes, SO_RCVBUF

	InitSegs    int     // initial cwnd, and cwnd after an idle time
	SSIncr      int     // growth of cwnd per ACK in slow start
	ThreshInit  float64 // initial ssthresh as a share of RcvrWin; 0: infinite
	Increment   int     // growth of cwnd per RTT in congestion avoidance
	Multiplier  float64 // factor of cwnd at a loss
	ABC         bool    // count acknowledged segments, at most 2 per ACK in slow start (RFC 3465), not ACKs
	Floyd       bool    // limited slow start (RFC 3742)
	MaxSSThresh int     // where it begins
	HighSpeed   bool    // HighSpeed TCP (RFC 3649)
	Scalable    bool    // Kelly's Scalable TCP
	Linux       bool    // HighSpeed, Scalable and Vegas are Linux', not their authors'

	Vegas      bool    // Brakmo's Vegas
	Alpha      int     // segments in the queue below which Vegas grows
	Beta       int     // and above which it shrinks
	Gamma      int     // and above which slow start ends
	VegasRTT   RTTKind // RTT of which the actual rate is made
	VegasFloyd bool    // at Gamma go on with limited slow start
	VegasSS    int     // RTTs per doubling in slow start: 1, or 2 as in the paper

	NewReno    bool // stay in recovery over partial ACKs (RFC 6582)
	SACK       bool // recover by the scoreboard (RFC 6675); the receiver must have it too
	FACK       bool // take all holes below the highest SACKed segment as lost
	Rampdown   bool // reach ssthresh by one segment per two ACKs, not at once
	PRR        bool // reach ssthresh in proportion to what has arrived (RFC 6937)
	Reloss     bool // what was resent is lost too once DupThresh ACKs tell of segments that left after it
	DupThresh  int  // duplicate ACKs that mean a loss
	BurstLimit int  // most segments sent at one ACK or time-out; 0: no limit

	Gap time.Duration // step of the schedule on which segments leave; 0: they leave as soon as they may

	Timeout  time.Duration // initial and least retransmission time-out
	Tick     time.Duration // time-outs are noticed at multiples of it; 0: when they are due
	MaxIdle  float64       // idle for so many time-outs, cwnd falls to InitSegs (RFC 2861); 0: never
	DropList []uint64      // segments whose first transmission is suppressed, ascending
}

// Receiver configures the end that acknowledges.
type Receiver struct {
	Port   int           // UDP port
	Debug  int           // 0 to 4; 1: tell of flows
	RcvBuf int           // bytes, SO_RCVBUF
	SACK   bool          // report SACK blocks
	DelAck time.Duration // longest delay of an ACK; 0: acknowledge each segment at once
}

// RTTKind is which RTT of the last round Vegas compares with the least one.
type RTTKind int

const (
	RTTMin  RTTKind = iota // the least
	RTTLast                // the last
	RTTMax                 // the largest
	RTTAvg                 // their mean
)

var rttKinds = []string{"min", "last", "max", "avg"}

// DefaultSender has the values of the original's sample; RTTAvg is what ns
// takes.
func DefaultSender() Sender {
	return Sender{
		Port: 7890, Debug: 1, MaxTime: 10 * time.Second,
		MSS: 1460, RcvrWin: 300, SndBuf: 32768, RcvBuf: 32768,
		InitSegs: 2, SSIncr: 1, ThreshInit: 1, Increment: 1, Multiplier: 0.5, MaxSSThresh: 100,
		Alpha: 1, Beta: 3, Gamma: 1, VegasRTT: RTTAvg, VegasSS: 1,
		NewReno: true, DupThresh: 3,
		Timeout: 500 * time.Millisecond, Tick: time.Second,
	}
}

// DefaultReceiver acknowledges each segment at once, without SACK.
func DefaultReceiver() Receiver {
	return Receiver{Port: 7890, Debug: 1, RcvBuf: 32768}
}

// Check returns all that contradicts itself in a configuration whose values
// are each allowed.
func (c Sender) Check() error {
	var problems []error
	wrong := func(is bool, format string, args ...any) {
		if is {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	wrong(c.MaxPkts == 0 && c.MaxTime == 0, "maxpkts and maxtime are both 0: the transfer has no end")
	wrong(uint64(c.InitSegs) > c.RcvrWin, "initsegs %d is more than rcvrwin %d", c.InitSegs, c.RcvrWin)
	wrong(c.FACK && !c.SACK, "fack 1 needs sack 1")
	wrong(c.Rampdown && !c.SACK, "rampdown 1 needs sack 1")
	wrong(c.PRR && !c.SACK, "prr 1 needs sack 1")
	wrong(c.Reloss && !c.SACK, "reloss 1 needs sack 1")
	wrong(c.PRR && c.Rampdown, "prr 1 and rampdown 1 exclude each other")
	wrong(c.HighSpeed && c.Scalable, "highspeed 1 and scalable 1 exclude each other")
	wrong(c.VegasFloyd && !c.Vegas, "vegas_floyd 1 needs vegas 1")
	wrong(c.Alpha > c.Beta, "alpha %d is more than beta %d", c.Alpha, c.Beta)
	for i, seg := range c.DropList {
		wrong(i > 0 && seg == c.DropList[i-1], "droplist names %d twice", seg)
		wrong(c.MaxPkts > 0 && seg >= c.MaxPkts, "droplist names %d, but segments are 0 to %d (maxpkts %d)", seg, c.MaxPkts-1, c.MaxPkts)
	}
	return errors.Join(problems...)
}

// fields lists the keys in the order in which they are printed.
func (c *Sender) fields() []field {
	return []field{
		text("host", &c.Host),
		number("port", &c.Port, 1, 65535),
		number("debug", &c.Debug, 0, 4),
		number("maxpkts", &c.MaxPkts, 0, math.MaxInt64),
		seconds("maxtime", &c.MaxTime, 0, 86400),
		number("mss", &c.MSS, HeaderBytes, MaxMSS),
		number("rcvrwin", &c.RcvrWin, 1, 1<<20),
		number("sndbuf", &c.SndBuf, 1, 1<<30),
		number("rcvbuf", &c.RcvBuf, 1, 1<<30),
		number("initsegs", &c.InitSegs, 1, 1<<20),
		number("ssincr", &c.SSIncr, 1, 1<<20),
		real("thresh_init", &c.ThreshInit, 0, 1),
		number("increment", &c.Increment, 1, 1<<20),
		real("multiplier", &c.Multiplier, 0.01, 0.99),
		flag("abc", &c.ABC),
		flag("floyd", &c.Floyd),
		number("max_ssthresh", &c.MaxSSThresh, 2, 1<<20),
		flag("highspeed", &c.HighSpeed),
		flag("scalable", &c.Scalable),
		flag("linux", &c.Linux),
		flag("vegas", &c.Vegas),
		number("alpha", &c.Alpha, 0, 1<<20),
		number("beta", &c.Beta, 0, 1<<20),
		number("gamma", &c.Gamma, 0, 1<<20),
		choice("vegas_rtt", &c.VegasRTT, rttKinds),
		flag("vegas_floyd", &c.VegasFloyd),
		number("vegas_ss", &c.VegasSS, 1, 2),
		flag("newreno", &c.NewReno),
		flag("sack", &c.SACK),
		flag("fack", &c.FACK),
		flag("rampdown", &c.Rampdown),
		flag("prr", &c.PRR),
		flag("reloss", &c.Reloss),
		number("dup_thresh", &c.DupThresh, 1, 1<<16),
		number("burst_limit", &c.BurstLimit, 0, 1<<20),
		microseconds("gap", &c.Gap, 0, 1e6),
		seconds("timeout", &c.Timeout, 0.001, 64),
		seconds("tick", &c.Tick, 0, 64),
		real("maxidle", &c.MaxIdle, 0, 1e6),
		segments("droplist", &c.DropList),
	}
}

func (c *Receiver) fields() []field {
	return []field{
		number("port", &c.Port, 1, 65535),
		number("debug", &c.Debug, 0, 4),
		number("rcvbuf", &c.RcvBuf, 1, 1<<30),
		flag("sack", &c.SACK),
		milliseconds("delack", &c.DelAck, 0, 500), // RFC 1122: less than 0.5 s
	}
}
