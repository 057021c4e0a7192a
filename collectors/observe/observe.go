// Package observe reads what of a host can influence TCP, whether or not
// anybody has asked for it: sysctls, interfaces, queues, routes, firewalls,
// modules, processors, and daemons that change such things. It starts no
// process: it reads files, and asks by netlink and ioctl.
package observe

import (
	"errors"
	"io"
	"io/fs"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Reading is what a host has at one time. Two readings differ only if
// somebody has changed the host: what changes by itself is not in them
// (LeftOut).
type Reading struct {
	UnixNs   int64             `json:"unix_ns"` // when it was complete
	BootID   string            `json:"boot_id"`
	Settings map[string]string `json:"settings"` // text by name
	Unread   map[string]string `json:"unread"`   // what could not be read: reason by name
}

// Read reads everything. What cannot be read is in Unread.
func Read() *Reading {
	r := &Reading{Settings: make(map[string]string), Unread: make(map[string]string)}
	r.BootID, _ = readText("/proc/sys/kernel/random/boot_id")
	r.readSysctls()
	r.readNetwork()
	r.readFirewalls()
	r.readModules()
	r.readKernel()
	r.readProcessors()
	r.readServices()
	r.UnixNs = time.Now().UnixNano()
	return r
}

// set adds a setting, unless it is left out.
func (r *Reading) set(name, text string) {
	if !leftOut(name) {
		r.Settings[name] = text
	}
}

// join adds to a setting that may have several values, in the order in which
// they are joined.
func (r *Reading) join(name, text string) {
	if before, ok := r.Settings[name]; ok {
		text = before + "; " + text
	}
	r.set(name, text)
}

// unread adds the reason why something could not be read, unless the kernel does
// not have it at all.
func (r *Reading) unread(name string, err error) {
	if missing(err) || leftOut(name) {
		return
	}
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathError.Err // the name tells what was read
	}
	r.Unread[name] = err.Error()
}

// missing tells that a kernel, or a device, does not have what was asked for.
func missing(err error) bool {
	for _, code := range []error{unix.ENOENT, unix.ENODEV, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// file adds the content of a file that has one value.
func (r *Reading) file(name, path string) {
	text, err := readText(path)
	if err != nil {
		r.unread(name, err)
		return
	}
	r.set(name, text)
}

// readText reads a file of /proc or /sys. Its words are separated by single blanks.
func readText(path string) (string, error) {
	b, err := readBytes(path)
	return strings.Join(strings.Fields(string(b)), " "), err
}

// readBytes does with three system calls what os.ReadFile does with six: a
// reading has a thousand files, and system calls of User-Mode Linux are slow.
func readBytes(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	for b := make([]byte, 0, 4096); ; {
		if len(b) == cap(b) {
			b = append(b, make([]byte, cap(b))...)[:len(b)]
		}
		n, err := unix.Read(fd, b[len(b):cap(b)])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		}
		b = b[:len(b)+n]
		// These files give in one piece what fits, and end in a newline.
		if n == 0 || len(b) < cap(b) && b[len(b)-1] == '\n' && len(b) < 2048 {
			return b, nil
		}
	}
}

// short is an error of an answer that lacks something.
var short = io.ErrUnexpectedEOF
