package sampler

import (
	"errors"
	"fmt"

	"dumbbell/collectors/clock"
	"dumbbell/collectors/ebpf"
)

// Probes tell why a source that not every host has cannot be had here.
var Probes = map[string]func() error{
	"trace": probeTrace,
	"ebpf":  probeEBPF,
}

func probeTrace() error {
	clock, err := clock.New()
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
