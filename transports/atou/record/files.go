package record

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Files are those that a command reads and writes. No output is another of them,
// and none loses what it had before there is something to write.
type Files struct {
	all     []file
	outputs []*Output
}

type file struct{ flag, path string }

// An Output is a file that is written.
type Output struct {
	*os.File
	created bool // by this process
	begun   bool
}

// Input notes a file that is read, by its flag.
func (f *Files) Input(flag, path string) { f.all = append(f.all, file{flag, path}) }

// Distinct refuses an output that is one of the files noted before.
func (f *Files) Distinct(flag, path string) error {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() { // it is not there yet, or can take several, as /dev/null
		return nil
	}
	for _, other := range f.all {
		if at, err := os.Stat(other.path); err == nil && os.SameFile(info, at) {
			return fmt.Errorf("%s %s is the file of %s too: name another", flag, path, other.flag)
		}
	}
	return nil
}

// Open opens an output, and changes nothing in it.
func (f *Files) Open(flag, path string) (*Output, error) {
	if err := f.Distinct(flag, path); err != nil {
		return nil, err
	}
	o, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	created := err == nil
	if errors.Is(err, fs.ErrExist) {
		o, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	f.Input(flag, path)
	output := &Output{File: o, created: created}
	f.outputs = append(f.outputs, output)
	return output, nil
}

// Begin forgets what the outputs had.
func (f *Files) Begin() (err error) {
	for _, o := range f.outputs {
		err = errors.Join(err, o.Begin())
	}
	return err
}

// Begin forgets what an output had.
func (o *Output) Begin() error {
	o.begun = true
	info, err := o.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	return o.Truncate(0)
}

// Close closes the outputs. Of those that were not begun, what Open created goes.
func (f *Files) Close() (err error) {
	for _, o := range f.outputs {
		err = errors.Join(err, o.Close())
		if o.created && !o.begun {
			err = errors.Join(err, os.Remove(o.Name()))
		}
	}
	return err
}
