package live

import (
	"bufio"
	"io"
	"time"

	"dumbbell/transports/atou/proto"
	"dumbbell/transports/atou/record"
)

const (
	recordInterval = 5 * time.Millisecond
	eventSlots     = 1 << 16 // of 88 bytes
	sampleSlots    = 1 << 8
)

// A Recorder writes what a sender does, in a goroutine of its own: the sender
// itself only copies it into a ring.
type Recorder struct {
	Events  io.Writer           // lines of events
	Debug   int                 // which
	Trace   io.Writer           // lines of segments and ACKs; nil: none
	Kinds   bool                // of a trace: which transmissions are repeated or suppressed
	Samples func(*Sample) error // writes a sample; nil: none

	events  *ring[proto.Event]
	samples *ring[Sample]
	end     chan struct{}
	done    chan error
}

// Start begins to write. Fields must not change any more.
func (r *Recorder) Start() {
	r.events, r.samples = newRing[proto.Event](eventSlots), newRing[Sample](sampleSlots)
	r.end, r.done = make(chan struct{}), make(chan error)
	go r.write()
}

// Observe is for a sender.
func (r *Recorder) Observe(e *proto.Event) {
	if e.Kind > proto.AckIn || r.Trace != nil {
		r.events.put(e)
	}
}

// Sample is for a sender.
func (r *Recorder) Sample(s *Sample) { r.samples.put(s) }

// Close writes what is left, and tells how many lines and samples are missing
// because they came faster than they could be written, and the first failure to
// write.
func (r *Recorder) Close() (lost uint64, err error) {
	close(r.end)
	err = <-r.done
	return r.events.lost.Load() + r.samples.lost.Load(), err
}

func (r *Recorder) write() {
	var failure error
	note := func(err error) {
		if failure == nil {
			failure = err
		}
	}
	var trace *bufio.Writer
	if r.Trace != nil {
		trace = bufio.NewWriterSize(r.Trace, 1<<16)
	}
	var line []byte
	write := func() {
		r.events.each(func(e *proto.Event) {
			if line = record.AppendEvent(line[:0], e, r.Debug, true); len(line) > 0 {
				_, err := r.Events.Write(line)
				note(err)
			}
			if trace != nil {
				line = record.AppendTrace(line[:0], e, r.Kinds)
				_, err := trace.Write(line)
				note(err)
			}
		})
		if r.Samples != nil {
			r.samples.each(func(s *Sample) { note(r.Samples(s)) })
		}
	}
	ticker := time.NewTicker(recordInterval)
	defer ticker.Stop()
	for ended := false; !ended; {
		select {
		case <-ticker.C:
		case <-r.end:
			ended = true
		}
		write()
	}
	if trace != nil {
		note(trace.Flush())
	}
	r.done <- failure
}
