package spool

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// packing ends the name of a file that is being compressed.
const packing = ".gz.part"

// A packer compresses files, one at a time, beside its caller.
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
	out, err := os.OpenFile(path+packing, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(out.Name())
		}
	}()
	if err := errors.Join(compress(path, out), out.Sync(), out.Close()); err != nil {
		return err
	}
	if err := os.Rename(out.Name(), path+".gz"); err != nil {
		return err
	}
	if err := Sync(filepath.Dir(path)); err != nil {
		return err
	}
	return os.Remove(path)
}

// compress runs gzip where nothing else wants the CPU. It is a process of its
// own, since a thread of this one that waits for the CPU keeps others waiting:
// Go's garbage collector stops them all together.
func compress(path string, to *os.File) error {
	var said strings.Builder
	gzip := exec.Command("gzip", "-1", "--no-name", "--stdout", path)
	gzip.Stdout, gzip.Stderr = to, &said
	if err := gzip.Start(); err != nil {
		return err
	}
	unix.Setpriority(unix.PRIO_PROCESS, gzip.Process.Pid, 19)
	if err := gzip.Wait(); err != nil {
		return fmt.Errorf("gzip: %w: %s", err, strings.TrimSpace(said.String()))
	}
	return nil
}
