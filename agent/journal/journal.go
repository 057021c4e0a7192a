// Package journal writes what a run directory says about the run while it goes
// on: events.jsonl and status.json. Whoever writes there has the events locked.
package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"dumbbell/collectors/clock"
	"dumbbell/collectors/spool"

	"golang.org/x/sys/unix"
)

// A Journal is what a run directory says about the run while it goes on:
// events.jsonl and status.json.
type Journal struct {
	Status Status // what State writes beside the state

	clock clock.Clock
	dir   string

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
	Lead    int64  `json:"lead_ns"` // how long before t0 the agent needs to have it
	Iperf3  string `json:"iperf3"`  // what iperf3 says of its version; empty if the plan does without
}

// Alive reports whether this is the status of an agent that has not ended.
func (s Status) Alive() bool {
	return s.State == "armed" || s.State == "waiting" || s.State == "running"
}

// ReadStatus reads the status that an agent left in a run directory; empty if
// there is none.
func ReadStatus(dir string) (s Status) {
	if b, err := os.ReadFile(filepath.Join(dir, "status.json")); err != nil || json.Unmarshal(b, &s) != nil {
		return Status{}
	}
	return s
}

// Attributes are the keys of an event beside its time, name and flow.
type Attributes map[string]any

// Open opens events.jsonl in a run directory, to append. An event that
// an agent had half written when it was killed is removed.
func Open(dir, version string, clock clock.Clock) (*Journal, error) {
	f, err := os.OpenFile(eventsFile(dir), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the events: %w", err)
	}
	if err := lockEvents(f); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the events: %w", err), f.Close())
	}
	if err := endInLine(f); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the events: %w", err), f.Close())
	}
	j := &Journal{clock: clock, dir: dir, events: f, Status: Status{Version: version}}
	if err := os.WriteFile(j.reserve(), make([]byte, reserveBytes), 0o644); err != nil {
		return nil, errors.Join(fmt.Errorf("reserving space for the status: %w", err), f.Close())
	}
	return j, nil
}

// endInLine removes what follows the last whole line of a file.
func endInLine(f *os.File) error {
	stat, err := f.Stat()
	if err != nil || !stat.Mode().IsRegular() {
		return err
	}
	b, err := io.ReadAll(f)
	if whole := int64(bytes.LastIndexByte(b, '\n') + 1); err == nil && whole < stat.Size() {
		err = f.Truncate(whole)
	}
	return err
}

// reserveBytes are kept on disk, and given up when it is full: an agent whose
// spool has filled the disk can still say so.
const reserveBytes = 128 << 10

func (j *Journal) reserve() string { return filepath.Join(j.dir, "reserve") }

// WithReserve repeats a write that found the disk or the quota used up, once
// the reserve is given up.
func (j *Journal) WithReserve(write func() error) error {
	err := write()
	if (errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)) && os.Remove(j.reserve()) == nil {
		err = write()
	}
	return err
}

// Event appends an event; flow is empty for one that concerns no flow. A
// failure to write is reported by Err, since an event is never a reason to
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
		err = j.WithReserve(func() error { return j.append(append(line, '\n')) })
	}
	if err != nil && j.err == nil {
		j.err = fmt.Errorf("writing event %s: %w", event, err)
	}
}

// append writes a line, or nothing of it.
func (j *Journal) append(line []byte) error {
	n, err := j.events.Write(line)
	if n == 0 || err == nil {
		return err
	}
	stat, statErr := j.events.Stat()
	if statErr != nil {
		return errors.Join(err, statErr)
	}
	return errors.Join(err, j.events.Truncate(stat.Size()-int64(n)))
}

// Err returns the first failure to write an event since it was last asked.
func (j *Journal) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	err := j.err
	j.err = nil
	return err
}

// State writes status.json so that a reader sees the old state or the new. One
// that says that the agent has ended is on disk when State returns.
func (j *Journal) State(state, reason string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.Status.State, j.Status.Reason, j.Status.UnixNs = state, reason, time.Now().UnixNano()
	b, err := json.Marshal(j.Status)
	if err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	path := filepath.Join(j.dir, "status.json")
	err = j.WithReserve(func() error { return os.WriteFile(path+".tmp", append(b, '\n'), 0o644) })
	ended := !j.Status.Alive()
	if err == nil && ended {
		err = spool.Sync(path + ".tmp")
	}
	if err == nil {
		err = os.Rename(path+".tmp", path)
	}
	if err == nil && ended {
		err = spool.Sync(j.dir)
	}
	if err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	return nil
}

// Close waits until the events are on disk and returns the first failure that
// Err has not.
func (j *Journal) Close() error {
	err := errors.Join(j.Err(), j.events.Sync(), j.events.Close())
	os.Remove(j.reserve())
	if err != nil {
		return fmt.Errorf("closing the events: %w", err)
	}
	return nil
}
