package main

import (
	"fmt"
	"net/netip"
	"sync"

	"dumbbell/traffic/guard"
)

// port is where an action waits for others, and who may come; false if it does not wait.
func (p *Plan) port(a Action) (guard.Port, bool) {
	switch a.Kind {
	case "iperf3_server", "udp_receive", "http_server", "atou_serve", "command_server":
		f := p.Flow(a.Flow)
		server, client := f.Dst, f.Src
		if f.serverSends() {
			server, client = client, server
		}
		return guard.Port{Local: netip.AddrPortFrom(server, f.ServerPort), Peer: client}, true
	case "tcp_listen":
		return guard.Port{Local: netip.AddrPortFrom(a.Dst, a.DstPort), Peer: a.Src}, true
	}
	return guard.Port{}, false
}

// strangers are those who come to this host's ports, and have no part in the
// plan.
type strangers struct {
	counter *guard.Counter
	failure error // of counting

	mu   sync.Mutex
	open []string // ports that could not be guarded, each with the reason
}

// count begins to count them. It has nothing to count where no port waits.
func (s *strangers) count(plan *Plan) {
	var ports []guard.Port
	for _, a := range plan.Own().Actions {
		if port, waits := plan.port(a); waits {
			ports = append(ports, port)
		}
	}
	if len(ports) > 0 {
		s.counter, s.failure = guard.Count(ports)
	}
}

// let remembers that an action's port was open to them, if there is a reason.
func (s *strangers) let(a Action, reason error) {
	if reason != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open = append(s.open, fmt.Sprintf("%s: %v", a, reason))
	}
}

// report tells how many packets of theirs came, and what was open to them.
func (s *strangers) report(journal *Journal) {
	if s.counter == nil && s.failure == nil {
		return
	}
	attributes := Attributes{}
	if s.failure == nil {
		var found guard.Strangers
		found, s.failure = s.counter.Read()
		attributes["packets"], attributes["first"] = found.Packets, found.First
	}
	if s.failure != nil {
		attributes = Attributes{"reason": s.failure.Error()}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	attributes["open"] = append([]string{}, s.open...)
	journal.Event("strangers", "", attributes)
}

func (s *strangers) close() {
	if s.counter != nil {
		s.counter.Close()
	}
}
