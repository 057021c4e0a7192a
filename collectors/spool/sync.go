package spool

import (
	"errors"
	"os"
)

// Sync waits until a file, or the entries of a directory, are on disk.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
