package main

import (
	"fmt"
	"os"

	"dumbbell/agent/archive"
)

func mainArchive(dir string) int {
	if err := archive.Make(dir); err != nil {
		fmt.Fprintf(os.Stderr, "dumbbell-agent archive: %v\n", err)
		return 1
	}
	return 0
}
