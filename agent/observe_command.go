package main

import (
	"encoding/json"
	"os"

	"dumbbell/collectors/observe"
)

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
