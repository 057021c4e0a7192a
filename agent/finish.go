package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"dumbbell/agent/archive"
	"dumbbell/agent/hold"
	"dumbbell/agent/journal"
	"dumbbell/agent/kind"
	"dumbbell/agent/observed"
	"dumbbell/agent/phase"
	"dumbbell/collectors/spool"
)

// Finish packs what an agent has left, after it has done what one has left
// undone that was killed, or hung.
func Finish(dir, version string) error {
	return errors.Join(finishRun(dir, version), archive.Make(dir))
}

// finishRun restores the path, makes the spool readable, and lets the status
// say how an agent ended, as systemd tells. It does nothing after an agent that
// has ended in order.
func finishRun(dir, version string) error {
	status := journal.ReadStatus(dir)
	if !hold.Changed(dir) && !status.Alive() {
		return nil
	}
	r, err := phase.Open(dir, version)
	if err != nil {
		return err
	}
	err = errors.Join(hold.RestorePath(dir, r.Journal), observed.After(dir, r.Journal), mendSpool(r), kind.ForgetAll(dir)) // whatever its plan was: this run does not go on
	if !status.Alive() {
		return errors.Join(err, r.Journal.Close(), syncAll(dir))
	}
	how := "was killed"
	if os.Getenv("EXIT_CODE") == "exited" {
		how = "ended with status " + os.Getenv("EXIT_STATUS")
	}
	r.Journal.Status.Iperf3, r.Journal.Status.Lead = status.Iperf3, status.Lead
	_, reason := end(r, "failed", errors.Join(fmt.Errorf("the agent %s while it was %s", how, status.State), err))
	if journal.ReadStatus(dir).Alive() {
		err = reason
	}
	return err
}

// end leaves the run in its final state, once all that it has left is on disk.
// Whatever could not be written makes a run "failed" that would be "done".
func end(r *phase.Run, state string, err error) (string, error) {
	check := func(failure error) {
		if err = errors.Join(err, failure); failure != nil && state == "done" {
			state = "failed"
		}
	}
	reason := func() string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	check(r.Journal.Err())
	check(syncAll(r.Dir))
	var attributes journal.Attributes
	if err != nil {
		attributes = journal.Attributes{"reason": reason()}
	}
	r.Journal.Event(state, "", attributes)
	check(r.Journal.Close())
	if failure := r.Journal.State(state, reason()); failure != nil {
		check(failure)
		r.Journal.State(state, reason()) // else that of an agent that was killed is left
	}
	return state, err
}

// mendSpool leaves the spool of a killed agent readable: complete up to its last batch.
func mendSpool(r *phase.Run) error {
	path := filepath.Join(r.Dir, "spool.lp")
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	rows, tornBytes, err := spool.Open(path, r.Clock)
	if err != nil {
		return err
	}
	r.Journal.Event("spool_mended", "", journal.Attributes{"torn_bytes": tornBytes})
	return rows.Close()
}

// syncAll waits until all files below a run directory are on disk, whoever has
// written them, with all entries of directories that lead to them from that of
// all runs.
func syncAll(dir string) error {
	directories := []string{filepath.Dir(filepath.Dir(dir)), filepath.Dir(dir)}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			directories = append(directories, path)
		case entry.Type().IsRegular():
			return spool.Sync(path)
		}
		return nil
	})
	for _, path := range slices.Backward(directories) {
		err = errors.Join(err, spool.Sync(path))
	}
	if err != nil {
		return fmt.Errorf("syncing what the run has left: %w", err)
	}
	return nil
}
