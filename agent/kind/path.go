package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	// pathLead is how long before its time tc is started: it reads its commands
	// from a pipe, so that starting a process makes no change late.
	pathLead = time.Second

	restoreTimeout = 10 * time.Second
)

// tcWord is a word of a tc command that needs no quoting in a batch.
var tcWord = regexp.MustCompile(`^[^\s"'#\\]+$`)

func batchable(commands [][]string) bool {
	for _, words := range commands {
		if len(words) == 0 || slices.ContainsFunc(words, func(word string) bool { return !tcWord.MatchString(word) }) {
			return false
		}
	}
	return true
}

// batch is the input of "tc -batch -".
func batch(commands [][]string) string {
	var b strings.Builder
	for _, words := range commands {
		b.WriteString(strings.Join(words, " ") + "\n")
	}
	return b.String()
}

// runPath changes the path at the planned time by a prepared batch of tc
// commands, records when it began and ended, and samples what the kernel has
// then. The first command that fails ends the batch and makes the run failed.
func (r *run) runPath(ctx context.Context, a Action, samples *sampler) error {
	p, err := r.newProcess(ctx, a)
	if err != nil {
		return err
	}
	defer p.close()
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("preparing %s: %w", a, err)
	}
	planned := r.t0.Add(a.At)
	if sleepUntil(ctx, planned.Add(-pathLead)) != nil {
		return nil
	}
	if err := p.start(); err != nil {
		return err
	}
	if sleepUntil(ctx, planned) != nil {
		return p.wait()
	}
	begun := time.Now()
	_, err = stdin.Write([]byte(batch(a.Commands)))
	err = errors.Join(err, stdin.Close(), p.wait())
	attributes := Attributes{"name": a.Name, "planned_unix_ns": planned.UnixNano(), "error_ns": begun.Sub(planned).Nanoseconds(),
		"took_ns": time.Since(begun).Nanoseconds(), "ok": err == nil}
	if err != nil {
		attributes["reason"] = err.Error()
	}
	r.journal.EventAt(begun, "path_changed", "", attributes)
	return errors.Join(err, samples.readBack())
}

// undoFile has the commands that undo what a phase changes in the path. It is
// there from before the first change until the path is as it was.
const undoFile = "path-undo.tc"

// prepareUndo writes the commands that undo all changes.
func (r *run) prepareUndo() error {
	restore := r.plan.Own().Restore
	if len(restore) == 0 {
		return nil
	}
	if err := os.WriteFile(filepath.Join(r.dir, undoFile), []byte(batch(restore)), 0o644); err != nil {
		return fmt.Errorf("preparing to restore the path: %w", err)
	}
	return nil
}

// restorePath undoes what the phase changed in the path, also if it was
// aborted, and also in place of an agent that was killed.
func (r *run) restorePath() error {
	path := filepath.Join(r.dir, undoFile)
	undo, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("restoring the path: %w", err)
	}
	defer undo.Close()
	ctx, cancel := context.WithTimeout(context.Background(), restoreTimeout)
	defer cancel()
	tc := exec.CommandContext(ctx, "tc", "-force", "-batch", "-") // the other direction, too, when one fails
	tc.Stdin = undo
	said, err := tc.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("restoring the path: %w: %s", err, bytes.TrimSpace(said))
	} else {
		err = os.Remove(path)
	}
	r.journal.Event("path_restored", "", Attributes{"ok": err == nil})
	return err
}
