package spool

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/klauspost/compress/gzip"
	"golang.org/x/sys/unix"
)

// packing ends the name of a file that is being compressed.
const packing = ".gz.part"

// A packer compresses files, one at a time, where nothing else wants the CPU.
type packer struct {
	done chan error // nil if none has been begun
}

// pack begins to compress a file. It returns the failure of the one before,
// for which it waits.
func (p *packer) pack(path string) error {
	if err := p.wait(); err != nil {
		return err
	}
	p.done = make(chan error, 1)
	go func() {
		// The niceness is the thread's, which ends with this function for want of an unlock.
		runtime.LockOSThread()
		unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 19)
		if err := pack(path); err != nil {
			p.done <- fmt.Errorf("compressing %s: %w", path, err)
		}
		close(p.done)
	}()
	return nil
}

// wait waits for the file that is being compressed.
func (p *packer) wait() error {
	if p.done == nil {
		return nil
	}
	err := <-p.done
	p.done = nil
	return err
}

// Pack compresses a spool that nobody writes or follows any more.
func Pack(path string) error {
	segments, err := Segments(path)
	if err != nil {
		return err
	}
	for _, s := range segments {
		if strings.HasSuffix(s.Path, ".lp") {
			err = errors.Join(err, pack(s.Path))
		}
	}
	return err
}

// pack replaces a file by its compressed form. A crash leaves the one or the
// other whole.
func pack(path string) (err error) {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(path+packing, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(out.Name())
		}
	}()
	zip, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
	if err == nil {
		_, err = io.Copy(zip, in)
		err = errors.Join(err, zip.Close(), out.Sync(), out.Close())
	}
	if err != nil {
		return err
	}
	if err := os.Rename(out.Name(), path+".gz"); err != nil {
		return err
	}
	return os.Remove(path)
}
