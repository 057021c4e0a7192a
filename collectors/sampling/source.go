// Package sampling is the loop that samples: sources, at the ticks of a pace,
// into an output.
package sampling

import (
	"errors"
	"time"

	"dumbbell/collectors/row"
)

// A Source writes rows of what one part of the kernel says now.
type Source interface {
	// Sample stamps rows with the time at which the kernel was asked. An error
	// says what is missing from them.
	Sample(*row.Rows) error
	Close() error
}

// A Finisher is a source that holds back what it is not sure of yet.
type Finisher interface {
	// Finish is the last sample: it leaves nothing for a next one.
	Finish(*row.Rows) error
}

// Sources are sampled together.
type Sources []Source

// Sample samples all and returns the first failure: what fails leaves the rest alone.
func (all Sources) Sample(rows *row.Rows) error {
	var failure error
	for _, s := range all {
		if err := s.Sample(rows); err != nil && failure == nil {
			failure = err
		}
	}
	return failure
}

// Finish finishes those that hold something back.
func (all Sources) Finish(rows *row.Rows) error {
	var failures []error
	for _, s := range all {
		if f, ok := s.(Finisher); ok {
			failures = append(failures, f.Finish(rows))
		}
	}
	return errors.Join(failures...)
}

// Close closes all.
func (all Sources) Close() error {
	var failures []error
	for _, s := range all {
		failures = append(failures, s.Close())
	}
	return errors.Join(failures...)
}

// Every samples a source that changes slowly, or costs much, less often than
// the others: when an interval has passed since the last time.
func Every(interval time.Duration, s Source) Source { return &every{Source: s, interval: interval} }

type every struct {
	Source
	interval time.Duration
	last     time.Time
}

func (e *every) Sample(rows *row.Rows) error {
	now := time.Now()
	if now.Sub(e.last) < e.interval {
		return nil
	}
	e.last = now
	return e.Source.Sample(rows)
}
