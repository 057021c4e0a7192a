package phase

import (
	"fmt"
	"sync"

	"dumbbell/agent/journal"
	"dumbbell/agent/plan"
	"dumbbell/traffic/guard"
)

// Strangers are those who come to this host's ports, and have no part in the
// plan.
type Strangers struct {
	counter *guard.Counter
	failure error // of counting

	mu   sync.Mutex
	open []string // ports that could not be guarded, each with the reason
}

// Count begins to count them at ports. It has nothing to count where no port waits.
func (s *Strangers) Count(ports []guard.Port) {
	if len(ports) > 0 {
		s.counter, s.failure = guard.Count(ports)
	}
}

// let remembers that an action's port was open to them, if there is a reason.
func (s *Strangers) let(a plan.Action, reason error) {
	if reason != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open = append(s.open, fmt.Sprintf("%s: %v", a, reason))
	}
}

// Report tells how many packets of theirs came, and what was open to them.
func (s *Strangers) Report(log *journal.Journal) {
	if s.counter == nil && s.failure == nil {
		return
	}
	attributes := journal.Attributes{}
	if s.failure == nil {
		var found guard.Strangers
		found, s.failure = s.counter.Read()
		attributes["packets"], attributes["first"] = found.Packets, found.First
	}
	if s.failure != nil {
		attributes = journal.Attributes{"reason": s.failure.Error()}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	attributes["open"] = append([]string{}, s.open...)
	log.Event("strangers", "", attributes)
}

// Close ends the counting.
func (s *Strangers) Close() {
	if s.counter != nil {
		s.counter.Close()
	}
}
