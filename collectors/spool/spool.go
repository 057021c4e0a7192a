// Package spool writes samples as InfluxDB line protocol to an append-only
// file, the record of truth of a run.
//
// Rows are written in batches. A batch is some rows and a comment line
//
//	# batch=N rows=N crc32=HEX
//
// whose checksum (IEEE, 8 digits) covers the bytes of its rows. Batches count
// from 1. Readers of line protocol skip the comments.
package spool

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"
	"time"

	"github.com/influxdata/line-protocol/v2/lineprotocol"
)

// flushBytes bounds the memory of a batch.
const flushBytes = 64 << 10

// A Writer appends batches of rows to a spool file. It is safe for concurrent
// use: a row belongs to its caller from Row to End, while others wait.
type Writer struct {
	mu      sync.Mutex
	file    *os.File
	encoder lineprotocol.Encoder
	start   int // of the row begun last, in the encoder's buffer
	rows    int
	size    int64 // of the file, up to the last complete batch
	lost    int   // rows that could not be written
	lostFor error // why
	batch   int   // number of the last batch written
	flushed time.Time
}

// Open opens or creates a spool. An incomplete batch at the end of an existing
// file was cut short by a crash: it is removed, and its size is returned, so
// that the loss can be reported. A spool damaged elsewhere is refused.
func Open(path string) (w *Writer, tornBytes int64, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, 0, fmt.Errorf("opening the spool: %w", err)
	}
	defer func() {
		if err != nil {
			file.Close()
		}
	}()
	complete, err := Scan(file)
	if err != nil && !errors.Is(err, ErrTorn) {
		return nil, 0, fmt.Errorf("reading the spool %s: %w", path, err)
	}
	stat, err := file.Stat()
	if err != nil {
		return nil, 0, fmt.Errorf("opening the spool: %w", err)
	}
	if tornBytes = stat.Size() - complete.Bytes; tornBytes > 0 {
		if err := file.Truncate(complete.Bytes); err != nil {
			return nil, 0, fmt.Errorf("removing an incomplete batch from the spool: %w", err)
		}
	}
	return &Writer{file: file, batch: complete.Batch, size: complete.Bytes, flushed: time.Now()}, tornBytes, nil
}

// Row starts a row: the caller adds tags in alphabetical order and fields to
// the encoder and then, in all cases, calls End.
func (w *Writer) Row(measurement string) *lineprotocol.Encoder {
	w.mu.Lock()
	w.start = len(w.encoder.Bytes())
	w.encoder.StartLine(measurement)
	return &w.encoder
}

// End ends the row begun last and stamps it. A row that line protocol cannot
// express is left out and reported; the rows before it stay.
func (w *Writer) End(t time.Time) error {
	defer w.mu.Unlock()
	w.encoder.EndLine(t)
	err := w.encoder.Err()
	if row := w.encoder.Bytes()[w.start:]; err == nil && bytes.Count(row, []byte("\n")) != 1 {
		err = errors.New("a text contains a line break") // allowed by line protocol, but a row is a line here
	}
	if err != nil {
		w.encoder.SetBuffer(w.encoder.Bytes()[:w.start])
		return fmt.Errorf("encoding a row: %w", err)
	}
	w.rows++
	return nil
}

// FlushDue writes the batch if one second would have passed before the next
// call, which is expected after the given time, or if the batch is large.
func (w *Writer) FlushDue(next time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.flushed)+next < time.Second && len(w.encoder.Bytes()) < flushBytes {
		return nil
	}
	return w.flush()
}

// Flush writes the rows gathered so far as one batch, in one write. Rows that
// the file system refuses are lost and counted.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flush()
}

func (w *Writer) flush() error {
	w.flushed = time.Now()
	if w.rows == 0 {
		return nil
	}
	rows := w.encoder.Bytes()
	batch := fmt.Appendf(rows, "# batch=%d rows=%d crc32=%08x\n", w.batch+1, w.rows, crc32.ChecksumIEEE(rows))
	n, err := w.file.Write(batch)
	if err == nil {
		w.batch++
		w.size += int64(n)
	} else {
		// A full disk is no reason to disturb a run: its rows are counted as lost, and Close says so.
		w.lost, w.lostFor = w.lost+w.rows, err
		err = w.file.Truncate(w.size) // what was written of the batch
	}
	w.rows = 0
	w.encoder.SetBuffer(batch[:0])
	if err != nil {
		return fmt.Errorf("writing the spool: %w", err)
	}
	return nil
}

// Close flushes, waits until the spool is on disk, and closes it. Its error
// tells how many rows could not be written since the spool was opened.
func (w *Writer) Close() error {
	err := w.Flush()
	if w.lost > 0 {
		err = errors.Join(err, fmt.Errorf("%d rows are not in the spool: %w", w.lost, w.lostFor))
	}
	if syncErr := w.file.Sync(); syncErr != nil {
		err = errors.Join(err, fmt.Errorf("syncing the spool: %w", syncErr))
	}
	return errors.Join(err, w.file.Close())
}

// Complete tells of the complete batches at the start of a spool.
type Complete struct {
	Batch int   // number of the last one
	Rows  int   // rows in all of them
	Bytes int64 // their length in the file, comments included
}

// ErrTorn says that a spool ends within a batch: its writer was killed, or is
// still writing.
var ErrTorn = errors.New("the spool ends within a batch")

// Scan reads a spool from the start and checks numbers, row counts and
// checksums. What it returns covers the batches before the first that is not
// complete and correct; the error is ErrTorn if only the end is missing.
func Scan(r io.Reader) (Complete, error) {
	var (
		done   Complete
		offset int64
		rows   int
		crc    uint32
		lines  = bufio.NewReader(r)
	)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			if len(line) > 0 || rows > 0 {
				return done, ErrTorn
			}
			return done, nil
		}
		if err != nil {
			return done, err
		}
		offset += int64(len(line))
		if line[0] != '#' {
			rows++
			crc = crc32.Update(crc, crc32.IEEETable, line)
			continue
		}
		want := fmt.Sprintf("# batch=%d rows=%d crc32=%08x\n", done.Batch+1, rows, crc)
		if string(line) != want {
			return done, fmt.Errorf("batch at byte %d ends in %q where %q is right", done.Bytes, line, want)
		}
		done = Complete{Batch: done.Batch + 1, Rows: done.Rows + rows, Bytes: offset}
		rows, crc = 0, 0
	}
}
