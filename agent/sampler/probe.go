package main

import (
	"errors"
	"fmt"
	"net"
	"os"

	"dumbbell/collectors/ebpf"
	"dumbbell/collectors/sample"
	"dumbbell/collectors/trace"
)

// probes tell why a source that not every host has cannot be had here.
var probes = map[string]func() error{
	"trace": probeTrace,
	"ebpf":  probeEBPF,
}

// mainProbe says of each source why it cannot be had, if so.
func mainProbe(sources []string) int {
	code := 0
	for _, name := range sources {
		probe, known := probes[name]
		err := errors.New("this agent does not have it")
		if known {
			err = probe()
		}
		if err != nil {
			fmt.Printf("%s: %v\n", name, err)
			code = 1
		}
	}
	return code
}

func probeTrace() error {
	clock, err := sample.NewClock()
	if err != nil {
		return err
	}
	t, err := newTrace(nil, nil, clock)
	if err != nil {
		return err
	}
	failures := []error{t.Close()}
	for _, e := range t.Events() {
		if e.Unavailable != nil {
			failures = append(failures, fmt.Errorf("%s: %w", e.Name, e.Unavailable))
		}
	}
	return errors.Join(failures...)
}

func probeEBPF() error {
	counters, err := ebpf.OpenFlows(nil)
	if err != nil {
		return err
	}
	return counters.Close()
}

// mainTrace is the helper of a host's agents, one process for each: it is root,
// which they are not.
func mainTrace() int {
	err := serveTrace()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dumbbell-agent: tracing for an agent:", err)
		return 1
	}
	return 0
}

func serveTrace() error {
	c, err := net.FileConn(os.Stdin)
	if err != nil {
		return err
	}
	defer c.Close()
	conn, ok := c.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("the standard input is no connection of an agent but %v", c.LocalAddr().Network())
	}
	return trace.Serve(conn)
}
