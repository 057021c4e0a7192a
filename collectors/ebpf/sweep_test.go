package ebpf

import (
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"dumbbell/collectors/clock"
	"dumbbell/collectors/row"
	"dumbbell/collectors/tcpinfo"

	"golang.org/x/sys/unix"
)

// TestLostEndsAreSwept: the kernel has no room to tell of the end of most of
// many connections, some of which were sampled. Nothing is kept of any.
func TestLostEndsAreSwept(t *testing.T) {
	const connections = 300
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	check(t, err)
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).AddrPort().Port()
	counters := begin(t, func() (*Counters, error) { return OpenPorts([]uint16{port}) })
	sockets, err := tcpinfo.NewSockets(nil, "slot", tcpinfo.Filter{Ports: []uint16{port}})
	check(t, err)
	defer sockets.Close()
	sockets.Extend(unclosed{counters})
	shrinkReceiveBuffers(t)
	clock, err := clock.New()
	check(t, err)
	rows := row.NewRows(clock)
	round := func() {
		rows.Reset()
		check(t, sockets.Sample(rows))
	}
	connect := func() (client, server net.Conn) {
		client, err := net.Dial("tcp4", listener.Addr().String())
		check(t, err)
		server, err = listener.Accept()
		check(t, err)
		pingPong(t, client, server, 1)
		return client, server
	}

	lasts, peer := connect()
	var ends []net.Conn
	for i := range connections {
		client, server := connect()
		ends = append(ends, client, server)
		if i == connections/2 {
			round()
		}
	}
	if n := counters.kept(t); n != 2*connections+2 {
		t.Fatalf("%d connections are counted", n)
	}
	for _, c := range ends {
		check(t, c.Close())
	}
	for deadline := time.Now().Add(5 * time.Second); counters.kept(t) > 2; round() {
		if time.Now().After(deadline) {
			t.Fatalf("counters of %d connections are kept, 2 are open", counters.kept(t))
		}
	}
	t.Logf("%d ends were lost", sockets.FinalsLost())
	if sockets.FinalsLost() == 0 {
		t.Fatal("no end was lost: this tests nothing")
	}
	pingPong(t, lasts, peer, 10)
	values, err := counters.Read(cookie(t, tcpinfo.Tuple{Local: lasts.LocalAddr().(*net.TCPAddr).AddrPort(), Remote: lasts.RemoteAddr().(*net.TCPAddr).AddrPort()}))
	if err != nil || values == nil || values[Field("segs_seen")] < 11 {
		t.Errorf("of one that lasts: %v, %v", values, err)
	}
}

func (c *Counters) kept(t *testing.T) (n int) {
	t.Helper()
	var key uint64
	var value connection
	all := c.collection.Maps["connections"].Iterate()
	for all.Next(&key, &value) {
		n++
	}
	check(t, all.Err())
	return n
}

// shrinkReceiveBuffers leaves the netlink sockets of this process, which listen
// for ends, room for one message.
func shrinkReceiveBuffers(t *testing.T) {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	check(t, err)
	shrunk := 0
	for _, f := range files {
		fd, err := strconv.Atoi(f.Name())
		check(t, err)
		name, err := unix.Getsockname(fd)
		if netlink, ok := name.(*unix.SockaddrNetlink); err == nil && ok && netlink.Groups != 0 {
			check(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 0))
			shrunk++
		}
	}
	if shrunk == 0 {
		t.Fatal("nothing listens for ends")
	}
}
