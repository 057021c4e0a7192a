// Package spool writes rows of InfluxDB line protocol to append-only files,
// the record of truth of a run.
//
// Rows are written in batches. A batch is some rows and a comment line
//
//	# batch=N rows=N crc32=HEX
//
// whose checksum (IEEE, 8 digits) covers the bytes of its rows. Batches count
// from 1. Readers of line protocol skip the comments.
//
// A spool begins in one file, spool.lp, and goes on in spool-2.lp, spool-3.lp
// and so on when one is full. The newest stay as they are, for whoever follows
// them, until Pack is called; older ones are compressed (spool.lp.gz).
package spool

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"dumbbell/collectors/clock"
	"dumbbell/collectors/row"

	"golang.org/x/sys/unix"
)

const (
	// flushBytes bounds the memory of a batch. Batches are few because each write
	// also wakes a thread of Go's runtime.
	flushBytes = 256 << 10

	// plainSegments are left uncompressed, so that delivery may be behind by so much.
	plainSegments = 8
)

// SegmentBytes is the size at which a file is full. Only tests change it.
var SegmentBytes int64 = 64 << 20

// A Writer appends batches of rows to a spool. It is safe for concurrent use.
type Writer struct {
	mu        sync.Mutex
	rows      *row.Rows
	path      string
	file      *os.File
	segment   int   // number of the file, from 1
	size      int64 // of the file, up to the last complete batch
	lost      int   // rows that could not be written
	lostFor   error // why
	rotateErr error // the first
	batch     int   // number of the last batch written
	flushed   time.Time
	packer    packer
	trailer   []byte

	segmentBytes  int64
	plainSegments int
}

// Open opens or creates the spool whose first file has the given path. An
// incomplete batch at the end of an existing spool was cut short by a crash: it
// is removed, and its size is returned, so that the loss can be reported. A
// spool damaged elsewhere in its last file is refused.
func Open(path string, clock clock.Clock) (w *Writer, tornBytes int64, err error) {
	w = &Writer{
		rows: row.NewRows(clock), path: path, segment: 1, flushed: time.Now(),
		segmentBytes: SegmentBytes, plainSegments: plainSegments,
	}
	segments, err := Segments(path)
	if err != nil {
		return nil, 0, err
	}
	if n := len(segments); n > 0 {
		w.segment = segments[n-1].Number
	}
	if tornBytes, err = w.open(); err != nil {
		return nil, 0, err
	}
	return w, tornBytes, nil
}

// open opens the last file and goes on after its last complete batch.
func (w *Writer) open() (tornBytes int64, err error) {
	file, err := os.OpenFile(w.segmentPath(w.segment), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return 0, fmt.Errorf("opening the spool: %w", err)
	}
	defer func() {
		if err != nil {
			file.Close()
		}
	}()
	first := 0
	if w.segment == 1 {
		first = 1
	}
	complete, err := Scan(file, first)
	if err != nil && !errors.Is(err, ErrTorn) {
		return 0, fmt.Errorf("reading the spool %s: %w", file.Name(), err)
	}
	stat, err := file.Stat()
	if err != nil {
		return 0, fmt.Errorf("opening the spool: %w", err)
	}
	if tornBytes = stat.Size() - complete.Bytes; tornBytes > 0 {
		if err := file.Truncate(complete.Bytes); err != nil {
			return 0, fmt.Errorf("removing an incomplete batch from the spool: %w", err)
		}
	}
	if w.segment > 1 && complete.Batch == 0 {
		return 0, fmt.Errorf("the spool %s has no complete batch to go on from", file.Name())
	}
	w.file, w.size, w.batch = file, complete.Bytes, complete.Batch
	return tornBytes, nil
}

// Add lets a function add rows, while others wait.
func (w *Writer) Add(add func(*row.Rows) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return add(w.rows)
}

// FlushDue writes the batch if one second would have passed before the next
// call, which is expected after the given time, or if the batch is large.
func (w *Writer) FlushDue(next time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.flushed)+next < time.Second && len(w.rows.Bytes()) < flushBytes {
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
	if w.rows.Len() == 0 {
		return nil
	}
	if w.size >= w.segmentBytes {
		w.rotate()
	}
	rows := w.rows.Bytes()
	w.trailer = fmt.Appendf(w.trailer[:0], "# batch=%d rows=%d crc32=%08x\n", w.batch+1, w.rows.Len(), crc32.ChecksumIEEE(rows))
	written, err := w.write(append(rows, w.trailer...)) // in the room that the buffer has left, most often
	if err == nil {
		w.batch++
		w.size += int64(written)
	} else {
		// A full disk is no reason to disturb a run: its rows are counted as lost, and Close says so.
		w.lost, w.lostFor, err = w.lost+w.rows.Len(), err, nil
		if written > 0 {
			err = w.file.Truncate(w.size)
		}
	}
	w.rows.Reset()
	if err != nil {
		return fmt.Errorf("writing the spool: %w", err)
	}
	return nil
}

// write appends a batch if the disk has room for all of it: who reads the spool
// meanwhile, as Telegraf does, would take a part of it for rows.
func (w *Writer) write(batch []byte) (int, error) {
	err := unix.Fallocate(int(w.file.Fd()), unix.FALLOC_FL_KEEP_SIZE, w.size, int64(len(batch)))
	if err == unix.ENOSPC || err == unix.EDQUOT { // not every file system can be asked
		return 0, &os.PathError{Op: "write", Path: w.file.Name(), Err: err}
	}
	return w.file.Write(batch)
}

// rotate goes on in another file, and lets an old one be compressed. Where that
// fails the spool stays in the file that it has.
func (w *Writer) rotate() {
	next, err := os.OpenFile(w.segmentPath(w.segment+1), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o644)
	if err == nil {
		err = w.file.Close()
		w.file, w.size = next, 0
		w.segment++
		if old := w.segment - w.plainSegments; old > 0 {
			err = errors.Join(err, w.packer.pack(w.segmentPath(old)))
		}
	}
	if err != nil && w.rotateErr == nil {
		w.rotateErr = fmt.Errorf("continuing the spool in another file: %w", err)
	}
}

// Close flushes, waits until all files of the spool are on disk, and closes it.
// Its error tells how many rows could not be written since the spool was opened.
func (w *Writer) Close() error {
	err := w.Flush()
	if w.lost > 0 {
		err = errors.Join(err, fmt.Errorf("%d rows are not in the spool: %w", w.lost, w.lostFor))
	}
	err = errors.Join(err, w.file.Close(), w.rotateErr, w.packer.wait())
	segments, syncErr := Segments(w.path)
	for _, s := range segments {
		syncErr = errors.Join(syncErr, Sync(s.Path))
	}
	if syncErr = errors.Join(syncErr, Sync(filepath.Dir(w.path))); syncErr != nil {
		err = errors.Join(err, fmt.Errorf("syncing the spool: %w", syncErr))
	}
	return err
}

func (w *Writer) segmentPath(number int) string {
	if number == 1 {
		return w.path
	}
	return fmt.Sprintf("%s-%d.lp", strings.TrimSuffix(w.path, ".lp"), number)
}

// A Segment is one file of a spool.
type Segment struct {
	Number int
	Path   string // ends in .lp, or in .lp.gz if it is compressed
}

// Segments lists the files of the spool whose first one has the given path, in order.
func Segments(path string) ([]Segment, error) {
	stem := strings.TrimSuffix(path, ".lp")
	found, err := filepath.Glob(stem + "*.lp*")
	if err != nil {
		return nil, fmt.Errorf("looking for the spool %s: %w", path, err)
	}
	var segments []Segment
	for _, p := range found {
		middle := strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(p, stem), ".gz"), ".lp")
		number := 1
		if middle != "" {
			if number, err = strconv.Atoi(strings.TrimPrefix(middle, "-")); err != nil {
				continue
			}
		}
		if !strings.HasSuffix(p, packing) {
			segments = append(segments, Segment{number, p})
		}
	}
	slices.SortFunc(segments, func(a, b Segment) int { return cmp.Compare(a.Number, b.Number) })
	return segments, nil
}

// Complete tells of the complete batches at the start of a file of a spool.
type Complete struct {
	Batch int   // number of the last one
	Rows  int   // rows in all of them
	Bytes int64 // their length in the file, comments included
}

// ErrTorn says that a spool ends within a batch: its writer was killed, or is
// still writing.
var ErrTorn = errors.New("the spool ends within a batch")

// Scan reads a file of a spool from the start and checks numbers, row counts
// and checksums. Its first batch has the given number, or any for 0. What Scan
// returns covers the batches before the first that is not complete and correct;
// the error is ErrTorn if only the end is missing.
func Scan(r io.Reader, first int) (Complete, error) {
	var (
		done   Complete
		offset int64
		rows   int
		crc    uint32
		lines  = bufio.NewReader(r)
		due    = first
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
		if due == 0 {
			fmt.Sscanf(string(line), "# batch=%d", &due)
		}
		want := fmt.Sprintf("# batch=%d rows=%d crc32=%08x\n", due, rows, crc)
		if string(line) != want {
			return done, fmt.Errorf("batch at byte %d ends in %q where %q is right", done.Bytes, line, want)
		}
		done = Complete{Batch: due, Rows: done.Rows + rows, Bytes: offset}
		due++
		rows, crc = 0, 0
	}
}
