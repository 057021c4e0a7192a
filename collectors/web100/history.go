package web100

import "dumbbell/collectors/trace"

// States of enum tcp_ca_state and of include/net/tcp_states.h.
const (
	open = iota
	disorder
	cwr
	recovery
	loss

	established = 1
)

// A history is what the trace of a connection tells, from the moment on at
// which it was established. Of one that began before its trace nothing is said.
type history struct {
	began                bool
	caState              int64
	signals              int64
	fastRetransmits      int64
	timeouts             int64 // the first of each
	followingTimeouts    int64
	abruptTimeouts       int64
	sendStalls           int64
	stalled              bool  // into CWR, and no segment has arrived since
	expired              int64 // timeouts since the last segment
	expiredIn            int64 // ca_state before them
	expiredAt            int64 // snd_una at the last one before; -1: there was none
	probes               int64
	last                 probe
	undisturbed          bool // ca_state is what it was at the last segment
	dupAcks              int64
	slowStart, congAvoid int64
	reductions           int64
	maxCwnd              int64
}

// A probe is what TCP knew when a segment arrived, before it was processed.
type probe struct {
	data, nxt, una, cwnd, ssthresh, receiveWindow int64
}

// Trace takes a record of the connection's trace in. They come in order of time.
func (c *Connection) Trace(r *trace.Record) {
	h := &c.history
	switch r.Event {
	case trace.State:
		if state, ok := r.Value("state"); ok && state == established {
			begun := history{began: true, expiredAt: -1}
			if !h.began {
				begun.caState = h.caState // a SYN may have timed out
			}
			*h = begun
		}
	case trace.CAState:
		if state, ok := r.Value("ca_state"); ok {
			h.change(state)
		}
	case trace.Probe:
		value := func(name string) int64 { v, _ := r.Value(name); return v }
		h.segment(probe{
			data: value("data_bytes"), nxt: value("snd_nxt"), una: value("snd_una"), cwnd: value("snd_cwnd"),
			ssthresh: value("snd_ssthresh"), receiveWindow: value("rcv_wnd"),
		})
	}
}

// change takes in that ca_state is set, be it to what it was. A signal is what
// asks for a new ssthresh.
func (h *history) change(state int64) {
	if state == loss { // at each timeout
		if h.expired == 0 {
			h.expiredIn = h.caState
		}
		h.expired++
	}
	if state == h.caState {
		return
	}
	switch state {
	case cwr:
		h.signals++
	case recovery:
		h.fastRetransmits++
		if h.caState != cwr { // one reduction for both
			h.signals++
		}
	}
	// What a tail loss probe has repaired leaves CWR with the segment that told it
	// (tcp_process_tlp_ack); a stall leaves it with a later one.
	h.stalled = state == cwr
	h.caState, h.undisturbed = state, false
}

// timedOut counts the timeouts since the last segment: the first after progress,
// and those that follow one (tcp_enter_loss, tcp_update_rto_stats).
func (h *history) timedOut(una int64) {
	following := h.expired
	if una != h.expiredAt {
		following--
		h.timeouts++
		if h.expiredIn <= disorder || h.expiredIn == loss {
			h.signals++
		}
		if h.expiredIn == open {
			h.abruptTimeouts++
		}
	}
	h.followingTimeouts += following
	h.expired, h.expiredAt = 0, una
}

// segment takes in what TCP knew before a segment. What it did with the one
// before is the difference.
func (h *history) segment(p probe) {
	if h.expired > 0 {
		h.timedOut(p.una)
	}
	if h.stalled {
		h.sendStalls++
		h.stalled = false
	}
	if before := h.last; h.probes > 0 {
		if before.data == 0 && before.nxt != before.una && p.una == before.una {
			h.dupAcks++
		}
		if h.undisturbed && h.caState == open {
			switch {
			case p.cwnd < before.cwnd:
				h.reductions++
			case p.cwnd > before.cwnd && before.cwnd < before.ssthresh:
				h.slowStart++
			case p.cwnd > before.cwnd:
				h.congAvoid++
			}
		}
	}
	h.maxCwnd = max(h.maxCwnd, p.cwnd)
	h.last, h.undisturbed = p, true
	h.probes++
}

// TraceLost says that the trace of the connection is not whole: nothing is counted from it.
func (c *Connection) TraceLost() { c.history = history{} }

// traced is a way by the trace, of which at least one segment has arrived.
func traced(grade Grade, how string, v func(*history) int64) Way {
	return Way{Trace, grade, how, func(c *Connection) (int64, bool) {
		return v(&c.history), c.history.began && c.history.probes > 0
	}}
}

func probedMaxCwnd(c *Connection) (int64, bool) {
	mss, ok := c.now(mssField)
	return max(c.history.maxCwnd*mss, c.maximum[maxCwnd]), ok && c.history.began && c.history.probes > 0
}

// sendStalls are not known of a connection with ECN, which enters CWR by marks, too.
func sendStalls(c *Connection) (int64, bool) {
	const ecn = 8 // TCPI_OPT_ECN
	options, ok := c.now(optionsField)
	return c.history.sendStalls, ok && options&ecn == 0 && c.history.began && c.history.probes > 0
}
