package tcpinfo

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const leftBytes = 123_456 // that the connection before has carried

// leftover makes a connection from an address, and ends its client. The server's
// socket is left: it holds the tuple, since the client said nothing, or is closed
// by an RST.
func leftover(t *testing.T, listener net.Listener, address net.IP, holdsTuple bool) (left *net.TCPConn, from *net.TCPAddr) {
	t.Helper()
	client, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: address}}).Dial("tcp4", listener.Addr().String())
	check(t, err)
	server, err := listener.Accept()
	check(t, err)
	exchange(t, client, server, leftBytes)
	raw, err := client.(*net.TCPConn).SyscallConn()
	check(t, err)
	check(t, raw.Control(func(fd uintptr) {
		if holdsTuple {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, 1)
		} else {
			err = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		}
	}))
	check(t, err)
	check(t, client.Close())
	return server.(*net.TCPConn), client.LocalAddr().(*net.TCPAddr)
}

// TestSocketLeftBefore: a socket of an earlier run has the tuple of a flow, and
// ends before the flow begins or while it lasts. The flow has its own rows, and
// no others.
func TestSocketLeftBefore(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to leave a connection without an end")
	}
	// Each client has an address of its own: the kernel gives its port, which is
	// used again, to nobody else in between.
	for name, test := range map[string]struct {
		client    byte // 127.0.1.client
		present   bool // when sampling begins: else it is closed, which the kernel does not list, but still held by its program
		endsFirst bool // before the flow begins
		sampled   bool // the flow is, while it lasts
	}{
		"it ends before":                    {1, true, true, true},
		"it ends while the flow lasts":      {2, true, false, true},
		"of a short flow":                   {3, true, true, false},
		"closed, ends before":               {4, false, true, true},
		"closed, ends while the flow lasts": {5, false, false, true},
		"closed, of a short flow":           {6, false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp4", "127.0.0.1:0")
			check(t, err)
			defer listener.Close()
			left, from := leftover(t, listener, net.IPv4(127, 0, 1, test.client), test.present)
			defer left.Close()
			there := Tuple{listener.Addr().(*net.TCPAddr).AddrPort(), from.AddrPort()}
			f, rows := flows(t, there), newRows(t)
			check(t, f.IgnorePresent())
			check(t, f.Sample(rows))
			if test.endsFirst {
				check(t, left.Close())
				await(t, func() bool { return f.destroyed.received() > 0 })
				check(t, f.Sample(rows))
			}
			client, err := (&net.Dialer{LocalAddr: from, Timeout: 10 * time.Second}).Dial("tcp4", listener.Addr().String())
			check(t, err)
			defer client.Close()
			server, err := listener.Accept()
			check(t, err)
			exchange(t, client, server, 1000)
			if test.sampled {
				check(t, f.Sample(rows))
			}
			if !test.endsFirst {
				check(t, left.Close())
				await(t, func() bool { return f.destroyed.received() > 0 })
				exchange(t, client, server, 500)
				check(t, f.Sample(rows))
			}
			if test.sampled && f.Open() != 1 {
				t.Errorf("%d open", f.Open())
			}
			check(t, server.Close())
			check(t, client.Close())
			await(t, func() bool { return f.destroyed.received() > 0 })
			check(t, f.Finish(rows))

			got := fieldsOf(t, rows, "tcp_info,flow=0")
			cookies := make(map[string]bool)
			for _, row := range got {
				cookies[row["cookie"]] = true
				if bytes, err := strconv.Atoi(row["bytes_received"]); err != nil || bytes > 1501 {
					t.Errorf("%d bytes: a row of the socket that was left", bytes)
				}
			}
			want := 1
			if test.sampled {
				want++
			}
			if !test.endsFirst {
				want++
			}
			if len(got) != want || len(cookies) != 1 || strings.Count(string(rows.Bytes()), final) != 1 || got[len(got)-1][final] != "true" || f.Open() != 0 {
				t.Errorf("%d rows of %d sockets, want %d of 1; %d open: %s", len(got), len(cookies), want, f.Open(), rows.Bytes())
			}
		})
	}
}

// received is how many ends are there to be taken.
func (d *Destroyed) received() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.ended)
}

func await(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not happen")
		}
	}
}
