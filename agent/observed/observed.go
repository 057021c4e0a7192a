// Package observed keeps what of the host could influence TCP, before and after a measurement.
package observed

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"dumbbell/agent/journal"
	"dumbbell/collectors/observe"

	"github.com/google/renameio/v2"
)

// measurement is the phase whose results count.
const measurement = "measurement"

// File has what of the host could influence TCP.
const File = "observed.json"

// Readings is File: the host before it said that it is armed, and when
// the phase was over and its path restored.
type Readings struct {
	Before *observe.Reading `json:"before"`
	After  *observe.Reading `json:"after"`
}

// Before begins the file in a run directory, if the phase is a measurement.
func Before(dir, phase string, journal *journal.Journal) error {
	if phase != measurement {
		return nil
	}
	return Write(dir, journal, Readings{Before: observe.Read()})
}

// After completes the file, if it was begun and is not complete.
func After(dir string, journal *journal.Journal) error {
	b, err := os.ReadFile(filepath.Join(dir, File))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var observed Readings
	if err == nil {
		err = json.Unmarshal(b, &observed)
	}
	if err != nil {
		return fmt.Errorf("reading what was observed before the phase: %w", err)
	}
	if observed.After != nil {
		return nil
	}
	observed.After = observe.Read()
	return Write(dir, journal, observed)
}

// Write replaces the file. What is half written is removed: the room for it is
// wanted for the status.
func Write(dir string, journal *journal.Journal, observed Readings) error {
	b, err := json.Marshal(observed)
	if err == nil {
		err = journal.WithReserve(func() error {
			return renameio.WriteFile(filepath.Join(dir, File), append(b, '\n'), 0o644, renameio.WithTempDir(dir))
		})
	}
	if err != nil {
		return fmt.Errorf("writing what was observed of the host: %w", err)
	}
	return nil
}
