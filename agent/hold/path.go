package hold

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"dumbbell/agent/journal"
	"dumbbell/agent/plan"
)

const restoreTimeout = 10 * time.Second

// undoFile has the commands that undo what a phase changes in the path. It is
// there from before the first change until the path is as it was.
const undoFile = "path-undo.tc"

// Changed reports whether a phase has changed the path and not yet restored it.
func Changed(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, undoFile))
	return err == nil
}

// PrepareUndo writes the commands of tc that undo all changes.
func PrepareUndo(dir string, restore [][]string) error {
	if len(restore) == 0 {
		return nil
	}
	if err := os.WriteFile(filepath.Join(dir, undoFile), []byte(plan.Batch(restore)), 0o644); err != nil {
		return fmt.Errorf("preparing to restore the path: %w", err)
	}
	return nil
}

// RestorePath undoes what the phase changed in the path, also if it was
// aborted, and also in place of an agent that was killed.
func RestorePath(dir string, log *journal.Journal) error {
	path := filepath.Join(dir, undoFile)
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
	log.Event("path_restored", "", journal.Attributes{"ok": err == nil})
	return err
}
