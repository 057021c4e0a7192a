// Package record writes what the original printed, byte for byte: the trace of
// segments and ACKs, the events, and the summary at the end.
package record

import (
	"strconv"
	"time"

	"dumbbell/transports/atou/proto"
)

// Least debug levels of what is printed.
const (
	DebugTimeouts = 1
	DebugRxmits   = 2
	DebugBadAcks  = 3
	DebugTrace    = 4
)

// AppendTrace appends the line of a segment or an ACK to a trace, and nothing
// for other events:
//
//	0.408133 258 xmt
//	0.408196 234 0.038062 26 26 ack
//
// These are time in s, segment, RTT in s, cwnd and ssthresh. The original told
// all transmissions as xmt; kinds tells them as xmt, rxt and drop.
func AppendTrace(b []byte, e *proto.Event, kinds bool) []byte {
	if e.Kind > proto.AckIn {
		return b
	}
	b = number(append(seconds(b, e.At, 6), ' '), e.Seg)
	name := " xmt\n"
	switch {
	case e.Kind == proto.AckIn:
		b = seconds(append(b, ' '), e.RTT, 6)
		b = number(append(b, ' '), uint64(e.Cwnd))
		b = number(append(b, ' '), uint64(e.Ssthresh))
		name = " ack\n"
	case kinds && e.Kind == proto.Rxt:
		name = " rxt\n"
	case kinds && e.Kind == proto.Drop:
		name = " drop\n"
	}
	return append(b, name...)
}

// AppendEvent appends the line of an event that the debug level lets through,
// and nothing for other events. With times, 3duprxmit tells its own, as in the
// later of the original's excerpts.
func AppendEvent(b []byte, e *proto.Event, debug int, times bool) []byte {
	field := func(name string, v uint64) {
		b = number(append(append(append(b, ' '), name...), ' '), v)
	}
	switch e.Kind {
	case proto.DupRxmit, proto.PackRxmit:
		if debug < DebugRxmits {
			return b
		}
		if e.Kind == proto.PackRxmit {
			b = append(b, "packrxmit"...)
		} else {
			b = append(b, "3duprxmit"...)
			if times {
				b = seconds(append(b, ' '), e.At, 2)
			}
		}
		field("pkt", e.Seg)
		field("nxt", e.Nxt)
		field("max", e.Max)
		field("cwnd", uint64(e.Cwnd))
		field("thresh", uint64(e.Ssthresh))
		field("recover", e.Recover)
		if e.Kind == proto.PackRxmit {
			field("una", e.Una)
		}
	case proto.TimerRxmit:
		if debug < DebugTimeouts {
			return b
		}
		b = append(b, "timerxmit"...)
		field("pkt", e.Seg)
		field("snd_nxt", e.Nxt)
		field("snd_max", e.Max)
		field("snd_cwnd", uint64(e.Cwnd))
		field("thresh", uint64(e.Ssthresh))
	case proto.BadAck:
		if debug < DebugBadAcks {
			return b
		}
		b = number(append(b, "badack "...), e.Seg)
		field("snd_max", e.Max)
		field("snd_nxt", e.Nxt)
		field("snd_una", e.Una)
	default:
		return b
	}
	return append(b, '\n')
}

func number(b []byte, v uint64) []byte { return strconv.AppendUint(b, v, 10) }

func seconds(b []byte, d time.Duration, digits int) []byte {
	return strconv.AppendFloat(b, d.Seconds(), 'f', digits, 64)
}
