package main

import (
	"flag"
	"time"

	"dumbbell/agent/hold"
)

// defaultLock is the lock of a host that a controller uses.
const defaultLock = "/var/lib/dumbbell/runs/lock.json"

func mainLock(args []string) int {
	var (
		flags = newFlags("lock")
		path  = flags.String("file", defaultLock, "`path` of the host's lock")
		runID = flags.String("run", "", "`id` of the run that takes the host, or keeps it")
		owner = flags.String("owner", "", "`who` runs it, for those who are refused")
		until = flags.Duration("for", 15*time.Minute, "`time` after which the host is free again")
	)
	if !parseFlags(flags, args, "run", "owner") {
		return 2
	}
	return lockResult(flags, hold.Take(*path, hold.Host{RunID: *runID, Owner: *owner, UntilUnixNs: time.Now().Add(*until).UnixNano()}))
}

func mainUnlock(args []string) int {
	flags := newFlags("unlock")
	path := flags.String("file", defaultLock, "`path` of the host's lock")
	runID := flags.String("run", "", "`id` of the run that gives the host back")
	if !parseFlags(flags, args, "run") {
		return 2
	}
	return lockResult(flags, hold.Release(*path, *runID))
}

func lockResult(flags *flag.FlagSet, err error) int {
	if err != nil {
		return failed(flags, err)
	}
	return 0
}
