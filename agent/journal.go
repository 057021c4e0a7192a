package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"dumbbell/collectors/sample"

	"golang.org/x/sys/unix"
)

// A Journal is what a run directory says about the run while it goes on:
// events.jsonl and status.json.
type Journal struct {
	clock  sample.Clock
	dir    string
	status Status

	mu     sync.Mutex
	events *os.File
	err    error // the first failure to write an event
}

// A Status is status.json.
type Status struct {
	State   string `json:"state"` // armed, waiting, running, done, failed or aborted
	Reason  string `json:"reason"`
	UnixNs  int64  `json:"unix_ns"`
	Version string `json:"version"`
	Iperf3  string `json:"iperf3"` // what iperf3 says of its version; empty if the plan does without
}

// alive reports whether this is the status of an agent that has not ended.
func (s Status) alive() bool {
	return s.State == "armed" || s.State == "waiting" || s.State == "running"
}

// readStatus reads the status that an agent left in a run directory; empty if
// there is none.
func readStatus(dir string) (s Status) {
	if b, err := os.ReadFile(filepath.Join(dir, "status.json")); err != nil || json.Unmarshal(b, &s) != nil {
		return Status{}
	}
	return s
}

// Attributes are the keys of an event beside its time, name and flow.
type Attributes map[string]any

// OpenJournal opens events.jsonl in a run directory, to append.
func OpenJournal(dir, version string, clock sample.Clock) (*Journal, error) {
	f, err := os.OpenFile(filepath.Join(dir, "events.jsonl"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the events: %w", err)
	}
	j := &Journal{clock: clock, dir: dir, events: f, status: Status{Version: version}}
	if err := os.WriteFile(j.reserve(), make([]byte, reserveBytes), 0o644); err != nil {
		return nil, errors.Join(fmt.Errorf("reserving space for the status: %w", err), f.Close())
	}
	return j, nil
}

// reserveBytes are kept on disk, and given up when it is full: an agent whose
// spool has filled the disk can still say so.
const reserveBytes = 128 << 10

func (j *Journal) reserve() string { return filepath.Join(j.dir, "reserve") }

// withReserve repeats a write that found the disk full, once the reserve is given up.
func (j *Journal) withReserve(write func() error) error {
	err := write()
	if errors.Is(err, unix.ENOSPC) && os.Remove(j.reserve()) == nil {
		err = write()
	}
	return err
}

// Event appends an event; flow is empty for one that concerns no flow. A
// failure to write is reported by Close, since an event is never a reason to
// disturb a run.
func (j *Journal) Event(event, flow string, attributes Attributes) {
	j.EventAt(time.Now(), event, flow, attributes)
}

// EventAt appends an event that was seen at a given time.
func (j *Journal) EventAt(t time.Time, event, flow string, attributes Attributes) {
	line, err := json.Marshal(struct {
		UnixNs int64  `json:"unix_ns"`
		MonoNs int64  `json:"mono_ns"`
		Event  string `json:"event"`
		Flow   string `json:"flow,omitempty"`
	}{t.UnixNano(), int64(j.clock.Mono(t)), event, flow})
	if err == nil && len(attributes) > 0 {
		var more []byte
		more, err = json.Marshal(attributes)
		if err == nil { // {a} and {b} become {a,b}
			line = append(append(line[:len(line)-1], ','), more[1:]...)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err == nil {
		err = j.withReserve(func() error {
			_, err := j.events.Write(append(line, '\n'))
			return err
		})
	}
	if err != nil && j.err == nil {
		j.err = fmt.Errorf("writing event %s: %w", event, err)
	}
}

// State writes status.json so that a reader sees the old state or the new.
func (j *Journal) State(state, reason string) error {
	j.status.State, j.status.Reason, j.status.UnixNs = state, reason, time.Now().UnixNano()
	b, err := json.Marshal(j.status)
	if err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	path := filepath.Join(j.dir, "status.json")
	if err := j.withReserve(func() error { return os.WriteFile(path+".tmp", append(b, '\n'), 0o644) }); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	return nil
}

// Close waits until the events are on disk and returns the first failure.
func (j *Journal) Close() error {
	err := errors.Join(j.err, j.events.Sync(), j.events.Close())
	os.Remove(j.reserve())
	if err != nil {
		return fmt.Errorf("closing the events: %w", err)
	}
	return nil
}
