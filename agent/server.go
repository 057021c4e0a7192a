package main

import (
	"context"
	"errors"
	"time"
)

// Servers wait for others. They are started before their host says that it is
// armed, so that the start can follow at once, and end when the phase is over,
// or when no start comes. Those that the agent itself is listen already (openEnds).

// clientLead is how long before its planned start a client is launched at the
// least (launchLead: if there is time).
const clientLead = 3 * time.Second

// leads are how long before its time an action needs to be known; others need no more than defaultLead.
var leads = map[string]time.Duration{
	"iperf3_client": clientLead,
	"atou_send":     clientLead,
	"path":          pathLead,
}

// defaultLead is what a host needs that only waits, or that begins at t0.
const defaultLead = 500 * time.Millisecond

// lead is how long before t0 this host needs to have it.
func (p *Plan) lead() time.Duration {
	longest := max(defaultLead, min(p.samplingLead()+defaultLead/2, clientLead))
	for _, a := range p.Own().Actions {
		if ahead, early := leads[a.Kind]; early {
			longest = max(longest, ahead-a.At)
		}
	}
	return longest
}

// serves reports whether an action is a process or a port that waits for
// others, or for packets, and not for its time.
func (a Action) serves() bool {
	switch a.Kind {
	case "iperf3_server", "atou_serve", "command_server", "tcp_listen", "capture":
		return true
	}
	return false
}

// startServers starts this host's servers, and returns when they have been
// started. They end with the context; what goes wrong is a failure of the run.
func (r *run) startServers(ctx context.Context) {
	for _, a := range r.plan.Own().Actions {
		if !a.serves() {
			continue
		}
		started := make(chan struct{})
		ended := make(chan struct{})
		r.servers.Go(func() {
			defer close(ended)
			r.fail(r.serve(ctx, a, func() { close(started) }))
		})
		select {
		case <-started:
		case <-ended:
		}
	}
}

// serve runs a server, which says when it has been started.
func (r *run) serve(ctx context.Context, a Action, started func()) error {
	switch a.Kind {
	case "capture":
		return r.runCapture(ctx, a, started)
	case "tcp_listen":
		return r.runTCPListen(ctx, a, started)
	case "command_server":
		_, err := r.runUntil(ctx, a, r.plan.Duration, started)
		return err
	case "atou_serve":
		_, err := r.runUntil(ctx, a, r.plan.Duration+atouDrain, started)
		return err
	}
	_, err := r.runPlain(ctx, a, started)
	return err
}

// until is a context that ends at a time from t0, whenever that becomes known.
func (r *run) until(ctx context.Context, end time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-r.begun:
			time.AfterFunc(time.Until(r.t0.Add(end)), cancel)
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// failed returns what has gone wrong so far.
func (r *run) failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.failures...)
}
