// Package kernel is how collectors ask the kernel: by files of /proc, and for
// lists over netlink.
package kernel

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// A File is a file of /proc, which the kernel writes anew for each reading from
// its start. It stays open.
type File struct {
	file   *os.File
	buffer []byte
}

// OpenFile opens a file of /proc. Those of a network namespace are under
// /proc/thread-self/net.
func OpenFile(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &File{file: f, buffer: make([]byte, 16<<10)}, nil
}

// Read returns the content now, valid until the next call.
func (f *File) Read() ([]byte, error) {
	for n := 0; ; {
		m, err := f.file.ReadAt(f.buffer[n:], int64(n))
		if n += m; errors.Is(err, io.EOF) {
			return f.buffer[:n], nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", f.file.Name(), err)
		}
		if n == len(f.buffer) {
			f.buffer = append(f.buffer, make([]byte, len(f.buffer))...)
		}
	}
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }
