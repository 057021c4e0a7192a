// Package archive packs a run directory into one file beside it, which a controller fetches.
package archive

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"dumbbell/agent/journal"
	"dumbbell/collectors/spool"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// blockBytes is how much of an archive is written at once. Where time is
// virtual, the last block is filled with zeros: dates are compressed to another
// length in each run, and each byte or write more would shift what follows.
const blockBytes = 1 << 20

// File is the archive of a run directory, beside it.
func File(dir string) string { return filepath.Clean(dir) + ".tgz" }

// Exists reports whether a run directory has been packed.
func Exists(dir string) bool {
	_, err := os.Stat(File(dir))
	return err == nil
}

// Make packs a run directory for who fetches it, unless that is done. It
// waits for others who are at work there, but not for ever.
func Make(dir string) error {
	if err := pack(dir); err != nil {
		return fmt.Errorf("packing %s: %w", dir, err)
	}
	return nil
}

func pack(dir string) error {
	owner, err := os.Stat(dir)
	if err != nil {
		return err
	}
	events, err := journal.Lock(dir)
	if err != nil {
		return err
	}
	defer events.Close() // which also ends the lock
	newest, err := newestFile(dir)
	if err != nil {
		return err
	}
	path := File(dir)
	if made, err := os.Stat(path); err == nil && !made.ModTime().Before(newest) {
		return nil
	}
	out, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(0o640))
	if err != nil {
		return err
	}
	defer out.Cleanup()
	err = writeBlocks(&patient{Writer: out}, dir, isVirtual(dir))
	if err == nil && os.Geteuid() == 0 {
		of := owner.Sys().(*syscall.Stat_t)
		err = out.Chown(int(of.Uid), int(of.Gid))
	}
	if err == nil { // so that a file that changes from now on is newer
		err = os.Chtimes(out.Name(), newest, newest)
	}
	if err == nil {
		err = out.CloseAtomicallyReplace()
	}
	if err == nil {
		err = spool.Sync(filepath.Dir(path))
	}
	return err
}

// newestFile is when something in a directory changed last.
func newestFile(dir string) (newest time.Time, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.ModTime().After(newest) {
			newest = info.ModTime()
		}
		return err
	})
	return newest, err
}

// writeBlocks writes what a directory has in blocks of blockBytes, the last of
// them filled with zeros if it is to be whole.
func writeBlocks(to io.Writer, dir string, whole bool) error {
	blocks := bufio.NewWriterSize(to, blockBytes)
	if err := writeArchive(blocks, dir); err != nil {
		return err
	}
	if whole {
		rest := blocks.AvailableBuffer()
		rest = rest[:cap(rest)]
		clear(rest) // who reads the archive ignores zeros
		if _, err := blocks.Write(rest); err != nil {
			return err
		}
	}
	return blocks.Flush()
}

// writeArchive writes what a directory has. Its headers are the same whenever
// it is written, and whoever owns the files.
func writeArchive(to io.Writer, dir string) error {
	compressed, err := gzip.NewWriterLevel(to, gzip.BestSpeed)
	if err != nil {
		return err
	}
	packed := tar.NewWriter(compressed)
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return addToArchive(packed, path, "./"+name, entry)
	})
	return errors.Join(err, packed.Close(), compressed.Close())
}

func addToArchive(packed *tar.Writer, path, name string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(info.Mode().Perm())}
	switch {
	case entry.IsDir():
		header.Typeflag = tar.TypeDir
		if header.Name += "/"; name == "./." {
			header.Name = "./"
		}
		return packed.WriteHeader(header)
	case info.Mode().Type() == fs.ModeSymlink:
		header.Typeflag = tar.TypeSymlink
		if header.Linkname, err = os.Readlink(path); err != nil {
			return err
		}
		return packed.WriteHeader(header)
	case !info.Mode().IsRegular():
		return nil // a socket or a pipe that a command has left has no content
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0) // a link would show what is elsewhere
	if err != nil {
		return err
	}
	defer file.Close()
	header.Size = info.Size()
	if err := packed.WriteHeader(header); err != nil {
		return err
	}
	if _, err := io.CopyN(packed, file, header.Size); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// isVirtual reports whether the plan of a run directory says that time is
// virtual. An agent may have ended for what is wrong with the rest of it.
func isVirtual(dir string) bool {
	var plan struct{ Virtual bool }
	b, err := os.ReadFile(filepath.Join(dir, "plan.json"))
	return err == nil && json.Unmarshal(b, &plan) == nil && plan.Virtual
}

// patient writes, and lets systemd wait as long as that goes on: a trace of
// hours is gigabytes.
type patient struct {
	io.Writer
	asked time.Time
}

func (p *patient) Write(b []byte) (int, error) {
	if now := time.Now(); now.Sub(p.asked) > 5*time.Second {
		p.asked = now
		daemon.SdNotify(false, fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", time.Minute.Microseconds()))
	}
	return p.Writer.Write(b)
}
