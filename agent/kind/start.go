package kind

import (
	"context"
	"errors"
	"fmt"
	"time"

	"dumbbell/agent/gate"
	"dumbbell/agent/journal"
	"dumbbell/agent/phase"
	"dumbbell/agent/plan"
	"dumbbell/collectors/tcpinfo"
)

const (
	// LaunchLead is how long before its planned start a client is launched, if
	// its host has known of the start for so long (clientLead). It holds lost
	// packets and their retransmissions during the handshake, and a host that is
	// slow because other flows run.
	LaunchLead = 4 * time.Second

	// tapLead is how long before the planned start the tap on the wire is
	// open: long enough for the kernel to begin to take times of packets, which
	// it leaves to a work queue. Until then a packet has the time of asking.
	tapLead = time.Second

	// clientLead is how long before its planned start a client is launched at the
	// least (LaunchLead: if there is time).
	clientLead = 3 * time.Second

	firstDataTimeout = 2 * time.Second
)

// A greeting is what a flow's connection carries before its data.
type greeting struct {
	bytes int                // the longest packet of it, in bytes of payload
	with  []gate.PayloadByte // of datagrams: bytes that only those of the data have
}

// connectAt is when a flow may make its connections.
func connectAt(t0 time.Time, f *plan.Flow) time.Time {
	at := f.Start - LaunchLead
	if f.Connect != nil {
		at = max(at, *f.Connect)
	}
	return t0.Add(at)
}

// listenForData begins to listen for the first data of a flow's last
// connection. What it returns waits for that data, and records when it left
// this host and, of TCP, which congestion control the connection has.
func listenForData(ctx context.Context, r *phase.Run, diag *tcpinfo.Conn, flow *plan.Flow, planned time.Time, before greeting) (await func()) {
	protocol, last := Of(flow).Protocol, flow.Tuple(flow.Streams-1)
	wire, err := gate.OpenTap(protocol, last, before.bytes, before.with...)
	return func() {
		var left time.Time
		if err == nil {
			defer wire.Close()
			ctx, cancel := context.WithDeadline(ctx, planned.Add(firstDataTimeout))
			defer cancel()
			left, err = wire.Next(ctx)
		}
		attributes := journal.Attributes{"planned_unix_ns": planned.UnixNano()}
		switch {
		case errors.Is(err, context.Canceled):
			return // the run has been stopped
		case errors.Is(err, context.DeadlineExceeded):
			err = fmt.Errorf("no data within %v of the planned start", firstDataTimeout)
			fallthrough
		case err != nil:
			attributes["error_ns"], attributes["reason"] = nil, err.Error()
			r.Journal.Event("flow_first_data", flow.Name, attributes)
			return
		}
		attributes["error_ns"] = left.Sub(planned).Nanoseconds()
		r.Journal.EventAt(left, "flow_first_data", flow.Name, attributes)
		var found tcpinfo.Sample
		if protocol == tcpinfo.TCP && diag.Get(protocol, last, &found) == nil {
			r.Journal.Event("flow_congestion_control", flow.Name, journal.Attributes{"name": found.CongestionControl})
		}
	}
}
