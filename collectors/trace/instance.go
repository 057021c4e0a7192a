package trace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrUnavailable says that this host does not let this process trace.
var ErrUnavailable = errors.New("kernel tracing is not available")

// A root is the directory of tracefs.
type root struct {
	path  string
	mount *os.File // nil if it was mounted already
}

// openRoot finds tracefs, or mounts it where only this process sees it.
func openRoot() (*root, error) {
	for _, path := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		if _, err := os.Stat(path + "/instances"); err == nil {
			return &root{path: path}, nil
		} else if errors.Is(err, fs.ErrPermission) {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	fail := func(err error) (*root, error) {
		return nil, fmt.Errorf("%w: mounting tracefs: %w", ErrUnavailable, err)
	}
	context, err := unix.Fsopen("tracefs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fail(err)
	}
	defer unix.Close(context)
	if err := unix.FsconfigCreate(context); err != nil {
		return fail(err)
	}
	mount, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return fail(err)
	}
	return &root{path: fmt.Sprintf("/proc/self/fd/%d", mount), mount: os.NewFile(uintptr(mount), "tracefs")}, nil
}

func (r *root) close() error {
	if r.mount == nil {
		return nil
	}
	return r.mount.Close()
}

// An instance is a trace of its own, apart from whatever else is traced on the host.
type instance struct {
	root  *root
	path  string
	pages []*os.File // trace_pipe_raw of each CPU
}

// newInstance makes an instance with a buffer of so many kB for each CPU.
func newInstance(bufferKB int) (i *instance, err error) {
	root, err := openRoot()
	if err != nil {
		return nil, err
	}
	i = &instance{root: root, path: filepath.Join(root.path, "instances", fmt.Sprint("dumbbell-", os.Getpid()))}
	defer func() {
		if err != nil {
			err = errors.Join(err, i.close())
		}
	}()
	removeLeftovers(root.path)
	if err := os.Mkdir(i.path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return i, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	// The oldest records give way to new ones, and the kernel counts them.
	for name, value := range map[string]string{"trace_clock": "mono", "buffer_size_kb": strconv.Itoa(bufferKB), "tracing_on": "1"} {
		if err := i.write(name, value); err != nil {
			return i, err
		}
	}
	paths, err := filepath.Glob(i.path + "/per_cpu/cpu*/trace_pipe_raw")
	if err != nil {
		return i, err
	}
	for _, path := range paths {
		f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return i, fmt.Errorf("opening a trace: %w", err)
		}
		i.pages = append(i.pages, f)
	}
	return i, nil
}

// removeLeftovers removes instances of processes that were killed.
func removeLeftovers(root string) {
	paths, _ := filepath.Glob(filepath.Join(root, "instances", "dumbbell-*"))
	for _, path := range paths {
		pid, err := strconv.Atoi(path[strings.LastIndexByte(path, '-')+1:])
		if err == nil && unix.Kill(pid, 0) == unix.ESRCH {
			os.Remove(path)
		}
	}
}

func (i *instance) write(name, value string) error {
	if err := os.WriteFile(filepath.Join(i.path, name), []byte(value), 0); err != nil {
		return fmt.Errorf("setting up a trace: %s to %q: %w", name, value, err)
	}
	return nil
}

// enable starts an event, such as tcp/tcp_probe, for records that pass a
// filter, and returns its format. The error is fs.ErrNotExist where the kernel
// does not have it.
func (i *instance) enable(event, filter string) (*format, error) {
	text, err := os.ReadFile(filepath.Join(i.path, "events", event, "format"))
	if err != nil {
		return nil, err
	}
	f, err := parseFormat(text)
	if err != nil {
		return nil, err
	}
	if strings.Contains(filter, "reason") {
		filter = realDrops(f)
	}
	if filter != "" {
		if err := i.write("events/"+event+"/filter", filter); err != nil {
			return nil, err
		}
	}
	return f, i.write("events/"+event+"/enable", "1")
}

// realDrops is a filter for drops whose reason is known, less the end of
// packets that were used up.
func realDrops(f *format) string {
	var not []string
	for number, name := range f.reasons {
		if name == "NOT_SPECIFIED" || name == "CONSUMED" || name == "NOT_DROPPED_YET" {
			not = append(not, fmt.Sprint("reason != ", number))
		}
	}
	return strings.Join(not, " && ")
}

// close removes the instance.
func (i *instance) close() error {
	var failures []error
	for _, f := range i.pages {
		failures = append(failures, f.Close())
	}
	if err := os.Remove(i.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		failures = append(failures, err)
	}
	return errors.Join(errors.Join(failures...), i.root.close())
}
