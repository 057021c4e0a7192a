// Dumbbell-agent executes one host's part of one phase of an experiment at
// absolute times, samples the kernel's state meanwhile, and leaves everything
// in the run directory (docs/data-model.md). It decides nothing: its plan is
// complete before it is armed.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"dumbbell/agent/process"
	"dumbbell/collectors/sampling"
	"dumbbell/collectors/spool"
)

var version = "unknown" // set by the linker: -X main.version=...

const usage = `usage: dumbbell-agent run DIR [LOCK]  execute DIR/plan.json once DIR/start.json appears; LOCK is the host's lock
       dumbbell-agent finish DIR      restore the path, and say how it ended, in place of an agent that was killed; pack DIR
       dumbbell-agent await DIR armed|ended [--timeout 30s]  wait for that, and tell in JSON what became of the agent
       dumbbell-agent archive DIR     make DIR.tgz, unless it has all that is in DIR
       dumbbell-agent observe         print what of the host can influence TCP (--help tells the options)
       dumbbell-agent lock            take this host for a run (--help tells the options)
       dumbbell-agent unlock          give it back
       dumbbell-agent pack DIR TO     compress the spools in directories of DIR, a run that InfluxDB has, and move it into TO
       dumbbell-agent udp-send        send UDP datagrams at a rate (--help tells the options)
       dumbbell-agent udp-receive     count what became of them
       dumbbell-agent probe SOURCE...  say whether trace or ebpf can be had on this host
       dumbbell-agent trace           trace for an agent that may not, which is at the other end of the standard input
       dumbbell-agent version

exit status: 0 done, 1 failed, 2 wrong usage, 3 run aborted
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	switch args := os.Args[1:]; {
	case len(args) == 2 && args[0] == "run":
		os.Exit(mainRun(ctx, args[1], ""))
	case len(args) == 3 && args[0] == "run":
		os.Exit(mainRun(ctx, args[1], args[2]))
	case len(args) == 2 && args[0] == "finish":
		os.Exit(mainFinish(args[1]))
	case len(args) >= 1 && args[0] == "await":
		os.Exit(mainAwait(args[1:]))
	case len(args) == 2 && args[0] == "archive":
		os.Exit(mainArchive(args[1]))
	case len(args) >= 1 && args[0] == "observe":
		os.Exit(mainObserve(args[1:]))
	case len(args) >= 1 && args[0] == "lock":
		os.Exit(mainLock(args[1:]))
	case len(args) >= 1 && args[0] == "unlock":
		os.Exit(mainUnlock(args[1:]))
	case len(args) == 3 && args[0] == "pack":
		os.Exit(mainPack(args[1], args[2]))
	case len(args) >= 1 && args[0] == "udp-send":
		os.Exit(mainUDPSend(ctx, args[1:]))
	case len(args) >= 1 && args[0] == "udp-receive":
		os.Exit(mainUDPReceive(ctx, args[1:]))
	case len(args) > 2 && args[0] == "supervise": // by the agent itself
		os.Exit(process.Supervise(ctx, args[1:]))
	case len(args) > 1 && args[0] == "probe":
		os.Exit(mainProbe(args[1:]))
	case len(args) == 1 && args[0] == "trace":
		os.Exit(mainTrace())
	case len(args) == 1 && args[0] == "version":
		fmt.Println(version)
	default:
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
}

func mainRun(ctx context.Context, dir, lock string) int {
	sampling.Prefer() // the "armed" event tells the niceness reached
	process.KeepFromChildren()
	state, err := Run(ctx, dir, lock, version)
	if err != nil {
		fmt.Fprintf(os.Stderr, "dumbbell-agent: %s: %v\n", state, err)
	}
	switch state {
	case "done":
		return 0
	case "aborted":
		return 3
	}
	return 1
}

func mainFinish(dir string) int {
	if err := Finish(dir, version); err != nil {
		fmt.Fprintf(os.Stderr, "dumbbell-agent finish: %v\n", err)
		return 1
	}
	return 0
}

func mainPack(dir, to string) int {
	phases, err := filepath.Glob(filepath.Join(dir, "*"))
	for _, phase := range phases {
		if strings.Contains(filepath.Base(phase), ".tgz") {
			err = errors.Join(err, os.Remove(phase)) // has been fetched
			continue
		}
		err = errors.Join(err, spool.Pack(filepath.Join(phase, "spool.lp")))
	}
	if err == nil {
		err = os.Rename(dir, filepath.Join(to, filepath.Base(dir)))
	}
	if err == nil {
		err = errors.Join(spool.Sync(to), spool.Sync(filepath.Dir(dir)))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "dumbbell-agent pack: %v\n", err)
		return 1
	}
	return 0
}
