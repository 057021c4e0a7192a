package trace

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"dumbbell/collectors/row"
	"dumbbell/collectors/tcpinfo"

	"golang.org/x/sys/unix"
)

// TestMain lets the test binary be a helper, as the agent is one.
func TestMain(m *testing.M) {
	if os.Getenv("DUMBBELL_TEST_AS_HELPER") == "" {
		os.Exit(m.Run())
	}
	conn, err := net.FileConn(os.Stdin)
	if err == nil {
		err = Serve(conn.(*net.UnixConn))
	}
	if err != nil {
		os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
}

// newHelper starts a helper that is root and has no capability, for the next
// that asks at a socket. It tells its process, and how it ends.
func newHelper(t *testing.T) (socket string, began chan int, ended chan error) {
	t.Helper()
	if _, err := exec.LookPath("setpriv"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs root and setpriv")
	}
	socket = filepath.Join(t.TempDir(), "socket")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	check(t, err)
	t.Cleanup(func() { l.Close() })
	began, ended = make(chan int, 1), make(chan error, 1)
	mounted := make(chan error)
	go func() {
		// Only this thread and the helper see the mount. It ends with them.
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNS)
		if err == nil {
			err = errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), os.MkdirAll("/sys/kernel/tracing", 0o700))
		}
		if err == nil {
			err = unix.Mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, "")
		}
		if errors.Is(err, unix.EBUSY) { // it is there already
			err = nil
		}
		mounted <- err
		if err != nil {
			return
		}
		conn, err := l.AcceptUnix()
		if err != nil {
			ended <- err
			return
		}
		file, err := conn.File()
		conn.Close()
		if err != nil {
			ended <- err
			return
		}
		helper := exec.Command("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", os.Args[0])
		helper.Env = append(os.Environ(), "DUMBBELL_TEST_AS_HELPER=1")
		helper.Stdin = file
		helper.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		var stderr strings.Builder
		helper.Stderr = &stderr
		err = helper.Start()
		file.Close()
		if err == nil {
			began <- helper.Process.Pid
			err = helper.Wait()
		}
		if stderr.Len() > 0 {
			err = errors.Join(err, errors.New(stderr.String()))
		}
		ended <- err
	}()
	if err := <-mounted; err != nil {
		t.Skipf("tracefs cannot be mounted: %v", err)
	}
	return socket, began, ended
}

// hasInstance tells whether the helper of this process traces.
func hasInstance(t *testing.T, pid int) bool {
	t.Helper()
	root, err := openRoot()
	check(t, err)
	defer root.close()
	prefix, err := instancePrefix()
	check(t, err)
	_, err = os.Stat(fmt.Sprint(root.path, "/instances/", prefix, pid))
	return err == nil
}

// TestHelper: a trace by a helper is like one's own, and ends with who asked for it.
func TestHelper(t *testing.T) {
	clock := newClock(t)
	local, listener := reserve(t, "127.0.0.1")
	tuple := tcpinfo.Tuple{Local: local.AddrPort(), Remote: listener.Addr().(*net.TCPAddr).AddrPort()}
	socket, began, ended := newHelper(t)
	s, err := NewSource([]tcpinfo.Flow{{Tuple: tuple}}, nil, clock, socket)
	check(t, err)
	helper := <-began
	if !hasInstance(t, helper) {
		t.Error("the helper has no instance of its own")
	}
	for _, e := range s.Events() {
		if e.Unavailable != nil {
			t.Errorf("%s: %v", e.Name, e.Unavailable)
		}
	}
	client, err := (&net.Dialer{LocalAddr: local}).Dial("tcp", listener.Addr().String())
	check(t, err)
	defer client.Close()
	server, err := listener.Accept()
	check(t, err)
	defer server.Close()
	transfer(t, client, server, 100_000)
	rows := row.NewRows(clock)
	check(t, s.Finish(rows))
	if got := string(rows.Bytes()); !strings.Contains(got, "tcp_probe ") || !strings.Contains(got, "tcp_event,event=state ") {
		t.Errorf("rows %.500q", got)
	}
	// An agent that is killed closes everything at once, in any order.
	s.tracing.by.Close()
	select {
	case err := <-ended:
		t.Errorf("the helper has ended while its pages are open: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	check(t, closePages(s.tracing.pages))
	check(t, <-ended)
	if hasInstance(t, helper) {
		t.Error("an instance is left behind")
	}
}

// TestNoHelper: the reason says what is missing.
func TestNoHelper(t *testing.T) {
	_, err := NewSource(nil, nil, newClock(t), filepath.Join(t.TempDir(), "none"))
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
	// One that answers with a refusal.
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
	check(t, err)
	var ends [2]*net.UnixConn
	for i, fd := range pair {
		f := os.NewFile(uintptr(fd), "end")
		conn, err := net.FileConn(f)
		check(t, err)
		f.Close()
		ends[i] = conn.(*net.UnixConn)
	}
	go func() {
		var asked request
		receive(ends[0], &asked)
		send(ends[0], answer{Unavailable: "it is locked down"})
	}()
	if _, err := askBy(ends[1], []uint16{1}); !errors.Is(err, ErrUnavailable) || !strings.HasSuffix(err.Error(), ": it is locked down") {
		t.Error(err)
	}
	ends[0].Close()
	if _, err := askBy(ends[1], []uint16{1}); !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
}
