package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"dumbbell/collectors/observe"
)

// measurement is the phase whose results count.
const measurement = "measurement"

// observedFile has what of the host could influence TCP.
const observedFile = "observed.json"

// Observed is observedFile: the host before it said that it is armed, and when
// the phase was over and its path restored.
type Observed struct {
	Before *observe.Reading `json:"before"`
	After  *observe.Reading `json:"after"`
}

// observeBefore begins the file, if this is a measurement.
func (r *run) observeBefore() error {
	if r.plan.Phase != measurement {
		return nil
	}
	return r.writeObserved(Observed{Before: observe.Read()})
}

// observeAfter completes the file, if it was begun and is not complete.
func (r *run) observeAfter() error {
	b, err := os.ReadFile(filepath.Join(r.dir, observedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var observed Observed
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
	return r.writeObserved(observed)
}

func (r *run) writeObserved(observed Observed) error {
	b, err := json.Marshal(observed)
	path := filepath.Join(r.dir, observedFile)
	if err == nil {
		err = r.journal.withReserve(func() error { return os.WriteFile(path+".tmp", append(b, '\n'), 0o644) })
	}
	if err == nil {
		err = os.Rename(path+".tmp", path)
	}
	if err != nil {
		os.Remove(path + ".tmp") // what there is room for is wanted for the status
		return fmt.Errorf("writing what was observed of the host: %w", err)
	}
	return nil
}

// mainObserve prints what the host has now, or what is left out of that.
func mainObserve(args []string) int {
	flags := newFlags("observe")
	volatile := flags.Bool("volatile", false, "print what is left out, with the reasons, and read nothing")
	if !parseFlags(flags, args) {
		return 2
	}
	var found any = observe.LeftOut
	if !*volatile {
		found = observe.Read()
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	if err := out.Encode(found); err != nil {
		return failed(flags, err)
	}
	return 0
}
