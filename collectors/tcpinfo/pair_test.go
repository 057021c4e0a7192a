package tcpinfo

import (
	"io"
	"net"
	"testing"
	"time"

	"dumbbell/collectors/clock"
	"dumbbell/collectors/row"

	"golang.org/x/sys/unix"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newRows(t testing.TB) *row.Rows {
	t.Helper()
	clock, err := clock.New()
	check(t, err)
	return row.NewRows(clock)
}

func dial(t testing.TB) *Conn {
	t.Helper()
	c, err := Dial()
	check(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// pair returns both ends of a connection over loopback. The listener stays open.
func pair(t testing.TB, network string) (client, server *net.TCPConn, listener net.Listener) {
	t.Helper()
	listener, err := net.Listen(network, map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0"}[network])
	check(t, err)
	t.Cleanup(func() { listener.Close() })
	c, err := net.Dial(network, listener.Addr().String())
	check(t, err)
	t.Cleanup(func() { c.Close() })
	s, err := listener.Accept()
	check(t, err)
	t.Cleanup(func() { s.Close() })
	return c.(*net.TCPConn), s.(*net.TCPConn), listener
}

func setCongestionControl(t testing.TB, c net.Conn, name string) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	check(t, err)
	check(t, raw.Control(func(fd uintptr) {
		err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
	}))
	check(t, err)
}

func tuple(c net.Conn) Tuple {
	return Tuple{c.LocalAddr().(*net.TCPAddr).AddrPort(), c.RemoteAddr().(*net.TCPAddr).AddrPort()}
}

// exchange sends n bytes and returns once they have been read and acknowledged.
func exchange(t testing.TB, client, server net.Conn, n int) {
	t.Helper()
	read := make(chan error, 1)
	go func() {
		_, err := io.CopyN(io.Discard, server, int64(n))
		read <- err
	}()
	_, err := client.Write(make([]byte, n))
	check(t, err)
	check(t, <-read)
	raw, err := client.(*net.TCPConn).SyscallConn()
	check(t, err)
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		var unsent int
		check(t, raw.Control(func(fd uintptr) { unsent, err = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ) }))
		check(t, err)
		if unsent == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes were not acknowledged within 5 s", unsent)
		}
	}
}
