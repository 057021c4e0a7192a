package http

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"dumbbell/collectors/clock"
	"dumbbell/collectors/row"
	"dumbbell/collectors/tcpinfo"

	"golang.org/x/sys/unix"
)

// connect connects to a flow's server, as one who does not belong to it.
func (f *flow) connect(t *testing.T, from string) *net.TCPConn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.Dial("tcp", f.Server.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn.(*net.TCPConn)
}

// fetches fetches as the flow's own client does, and returns what became of its
// server.
func (f *flow) fetches(t *testing.T, count int) ServerResult {
	t.Helper()
	if _, result, err := fetch(t, t.Context(), ClientConfig{Config: f.Config, Count: count}); err != nil || result.Done != count {
		t.Errorf("%+v, %v", result, err)
	}
	f.await(t, count)
	return f.end()
}

// TestEndlessRequests come in every way in which a request may be long.
func TestEndlessRequests(t *testing.T) {
	for name, test := range map[string]struct{ begin, repeated string }{
		"lines":        {"GET / HTTP/1.1\r\n", "X: " + strings.Repeat("x", 100) + "\r\n"},
		"one line":     {"GET / HTTP/1.1\r\nX: ", "x"},
		"a target":     {"GET /", "x"},
		"a method":     {"", "GET"},
		"continuation": {"GET / HTTP/1.1\r\nX: x\r\n", " x\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := serve(t, Config{Server: loopback("127.0.0.1"), Bytes: 1000})
			conn := f.connect(t, "127.0.0.1")
			conn.SetDeadline(time.Now().Add(10 * time.Second))
			_, err := io.WriteString(conn, test.begin)
			for piece, sent := strings.Repeat(test.repeated, 1+10_000/len(test.repeated)), 0; err == nil; sent += len(piece) {
				if sent > 64<<20 {
					t.Fatal("64 MB of a request were read")
				}
				_, err = io.WriteString(conn, piece)
			}
			if !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.EPIPE) {
				t.Error(err)
			}
			if got, want := f.fetches(t, 3), (ServerResult{Served: 3, Connections: 3, Foreign: 1}); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
}

// TestSilentConnections are more than there may be: the oldest are ended, and
// none is sampled or counted as the flow's.
func TestSilentConnections(t *testing.T) {
	const count = 2000
	sockets := tcpinfo.NewOwnSockets(nil)
	f := serve(t, Config{Server: loopback("127.0.0.1"), Bytes: 1000, Sockets: sockets})
	var silent []*net.TCPConn
	for i := range count {
		conn := f.connect(t, "127.0.0.1")
		if i%2 == 1 {
			io.WriteString(conn, "GET ") // it begins, and says no more
		}
		silent = append(silent, conn)
	}
	for i, conn := range silent[:count-silentMax] {
		conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
			t.Fatalf("connection %d of %d: %v", i+1, count, err)
		}
	}
	clock, err := clock.New()
	if err != nil {
		t.Fatal(err)
	}
	rows := row.NewRows(clock)
	if err := sockets.Sample(rows); err != nil || len(rows.Bytes()) > 0 {
		t.Errorf("samples %s, %v", rows.Bytes(), err)
	}
	if got, want := f.fetches(t, 3), (ServerResult{Served: 3, Connections: 3, Foreign: count}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestOtherHosts do not even get a connection.
func TestOtherHosts(t *testing.T) {
	t.Parallel()
	f := serveClient(t, Config{Server: loopback("127.0.0.1"), Bytes: 1000}, netip.MustParseAddr("127.0.0.1"))
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}, Timeout: 300 * time.Millisecond}
	if conn, err := dialer.Dial("tcp", f.Server.String()); err == nil {
		fmt.Fprintf(conn, "GET %s1 HTTP/1.1\r\nHost: x\r\n\r\n", f.Path)
		conn.Close()
		t.Error("a stranger is connected")
	}
	if got, want := f.fetches(t, 3), (ServerResult{Served: 3, Connections: 3}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestChangedMind asks for a fetch of the flow, and then for something else:
// what was fetched before counts.
func TestChangedMind(t *testing.T) {
	t.Parallel()
	f := serve(t, Config{Server: loopback("127.0.0.1"), Bytes: 1000})
	conn := f.connect(t, "127.0.0.1")
	fmt.Fprintf(conn, "GET %s1 HTTP/1.1\r\nHost: x\r\n\r\n", f.Path)
	f.read(t, conn)
	fmt.Fprint(conn, "GET /secrets HTTP/1.1\r\nHost: x\r\n\r\n")
	if answer, err := io.ReadAll(conn); len(answer) > 0 || !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("%q, %v", answer, err)
	}
	if got, want := f.end(), (ServerResult{Served: 1, Connections: 1, Foreign: 1}); got != want || f.served[1][0].Err != nil {
		t.Errorf("%+v, %+v", got, f.served)
	}
}

// read reads an answer.
func (f *flow) read(t *testing.T, conn net.Conn) {
	t.Helper()
	header := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n", f.Bytes)
	if _, err := io.ReadFull(conn, make([]byte, int64(len(header))+f.Bytes)); err != nil {
		t.Fatal(err)
	}
}
