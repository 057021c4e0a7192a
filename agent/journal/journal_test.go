package journal

import (
	"os"
	"testing"

	"dumbbell/collectors/clock"

	"golang.org/x/sys/unix"
)

// TestReserve: it is given up when space or quota is used up, and nothing is half written.
func TestReserve(t *testing.T) {
	for _, used := range []error{unix.ENOSPC, unix.EDQUOT} {
		j, err := Open(t.TempDir(), "version", clock.Clock{})
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		err = j.WithReserve(func() error {
			if _, err := os.Stat(j.reserve()); err == nil {
				return &os.PathError{Op: "write", Path: "x", Err: used}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
