package trace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrUnavailable says that this host does not let this process trace.
var ErrUnavailable = errors.New("kernel tracing is not available")

const (
	removeWait = 2 * time.Second
	removePoll = 10 * time.Millisecond
)

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
	if known, err := os.ReadFile("/proc/filesystems"); err == nil && !bytes.Contains(known, []byte("\ttracefs\n")) {
		return nil, fmt.Errorf("%w: this kernel has no tracefs", ErrUnavailable)
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

// tracing is what a Source reads: the kernel's descriptions of its records, and
// the pages of each CPU.
type tracing struct {
	events []described
	pages  []int     // trace_pipe_raw of each CPU: not os.Files, whose poller would be woken by every record
	by     io.Closer // an instance, or the connection to a helper that has one
}

// A described event has the kernel's description of its records, or the reason
// why it is not followed.
type described struct {
	Name        string `json:"name"`
	Format      string `json:"format,omitempty"`
	Unavailable string `json:"unavailable,omitempty"`
}

// begin traces the connections that have one of the ports, and drops.
func begin(ports []uint16) (t *tracing, err error) {
	i, err := newInstance(bufferKB)
	if err != nil {
		return nil, err
	}
	t = &tracing{by: i}
	for _, name := range slices.Concat(events, moduleEvents) {
		format, err := i.enable(name, ports)
		if errors.Is(err, fs.ErrNotExist) && slices.Contains(moduleEvents, name) {
			continue
		}
		d := described{Name: name, Format: string(format)}
		if errors.Is(err, fs.ErrNotExist) {
			d.Unavailable = "this kernel does not have it"
		} else if err != nil {
			d.Unavailable = err.Error()
		}
		t.events = append(t.events, d)
	}
	if t.pages, err = i.openPages(); err != nil {
		return nil, errors.Join(err, t.end())
	}
	return t, nil
}

// end closes the pages, and then what fills them.
func (t *tracing) end() error {
	return errors.Join(closePages(t.pages), t.by.Close())
}

func closePages(pages []int) error {
	var failures []error
	for _, fd := range pages {
		failures = append(failures, unix.Close(fd))
	}
	return errors.Join(failures...)
}

// An instance is a trace of its own, apart from whatever else is traced on the host.
type instance struct {
	root *root
	path string
}

// newInstance makes an instance with a buffer of so many kB for each CPU.
func newInstance(bufferKB int) (*instance, error) {
	root, err := openRoot()
	if err != nil {
		return nil, err
	}
	prefix, err := instancePrefix()
	if err != nil {
		return nil, errors.Join(err, root.close())
	}
	removeLeftovers(root.path, prefix)
	i := &instance{root: root, path: filepath.Join(root.path, "instances", fmt.Sprint(prefix, os.Getpid()))}
	if err := os.Mkdir(i.path, 0o700); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrUnavailable, err), root.close())
	}
	// The oldest records give way to new ones, and the kernel counts them.
	for name, value := range map[string]string{"trace_clock": "mono", "buffer_size_kb": strconv.Itoa(bufferKB), "tracing_on": "1"} {
		if err := i.write(name, value); err != nil {
			return nil, errors.Join(err, i.Close())
		}
	}
	return i, nil
}

func (i *instance) openPages() (pages []int, err error) {
	paths, err := filepath.Glob(i.path + "/per_cpu/cpu*/trace_pipe_raw")
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("opening %s: %w", path, err), closePages(pages))
		}
		pages = append(pages, fd)
	}
	return pages, nil
}

// instancePrefix is what names of instances of this PID namespace begin with.
// Hosts may share a kernel, and then processes of two hosts may have the same PID.
func instancePrefix() (string, error) {
	var of unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &of); err != nil {
		return "", fmt.Errorf("finding the PID namespace: %w", err)
	}
	return fmt.Sprintf("dumbbell-%d-", of.Ino), nil
}

// removeLeftovers removes instances of processes that were killed, also of one
// that had our PID.
func removeLeftovers(root, prefix string) {
	paths, _ := filepath.Glob(filepath.Join(root, "instances", prefix+"*"))
	for _, path := range paths {
		pid, err := strconv.Atoi(path[strings.LastIndexByte(path, '-')+1:])
		if err == nil && (pid == os.Getpid() || unix.Kill(pid, 0) == unix.ESRCH) {
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

// enable starts an event, such as tcp/tcp_probe, for connections with one of
// these ports or for real drops, and returns its format. The error is
// fs.ErrNotExist where the kernel does not have it.
func (i *instance) enable(event string, ports []uint16) (format []byte, err error) {
	format, err = os.ReadFile(filepath.Join(i.path, "events", event, "format"))
	if err != nil {
		return nil, err
	}
	f, err := parseFormat(format)
	if err != nil {
		return nil, err
	}
	filter := realDrops(f)
	if _, ofConnections := f.fields["sport"]; ofConnections {
		if filter = portFilter(ports); filter == "" {
			return format, nil // nothing to follow
		}
	}
	if filter != "" {
		if err := i.write("events/"+event+"/filter", filter); err != nil {
			return nil, err
		}
	}
	return format, i.write("events/"+event+"/enable", "1")
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

// Close removes the instance. Those who read its pages may be about to end.
func (i *instance) Close() error {
	err := os.Remove(i.path)
	for giveUp := time.Now().Add(removeWait); errors.Is(err, unix.EBUSY) && time.Now().Before(giveUp); {
		time.Sleep(removePoll)
		err = os.Remove(i.path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, i.root.close())
}
