package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"dumbbell/agent/await"
)

func mainAwait(args []string) int {
	flags := newFlags("await DIR armed|over|ended")
	timeout := flags.Duration("timeout", 30*time.Second, "`time` after which it is silent")
	if len(args) < 2 || !slices.Contains([]string{"armed", "over", "ended"}, args[1]) {
		fmt.Fprintln(os.Stderr, "usage: dumbbell-agent await DIR armed|over|ended [--timeout 30s]")
		return 2
	}
	if !parseFlags(flags, args[2:]) {
		return 2
	}
	b, err := json.Marshal(await.Agent(args[0], args[1], *timeout))
	if err != nil {
		return failed(flags, err)
	}
	fmt.Println(string(b))
	return 0
}
