package main

import (
	"errors"
	"fmt"
	"net"
	"os"

	"dumbbell/agent/sampler"
	"dumbbell/collectors/trace"
)

// mainProbe says of each source why it cannot be had, if so.
func mainProbe(sources []string) int {
	code := 0
	for _, name := range sources {
		probe, known := sampler.Probes[name]
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
