package tcpinfo

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// ownNetwork puts the test into a network namespace with nothing but a loopback.
func ownNetwork(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for a network namespace")
	}
	runtime.LockOSThread() // never unlocked: the namespace ends with the thread
	check(t, unix.Unshare(unix.CLONE_NEWNET))
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestEndsForWhichTheKernelHasNoRoom: whoever should receive them is kept
// waiting. Each socket's end is received or counted, and a flow whose end was
// lost is known to be open.
func TestEndsForWhichTheKernelHasNoRoom(t *testing.T) {
	ownNetwork(t)
	const connections = 100
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	check(t, err)
	defer listener.Close()
	var ends []net.Conn
	var tuples []Tuple
	for range connections {
		client, err := net.Dial("tcp4", listener.Addr().String())
		check(t, err)
		server, err := listener.Accept()
		check(t, err)
		exchange(t, client, server, 10)
		ends = append(ends, client, server)
		tuples = append(tuples, tuple(client), tuple(client).Mirror())
	}
	f, rows := flows(t, tuples...), newRows(t)
	check(t, f.Sample(rows))
	if f.Open() != 2*connections || f.FinalsLost() != 0 {
		t.Fatalf("%d open, %d lost", f.Open(), f.FinalsLost())
	}
	check(t, f.destroyed.raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 0) // room for one message
	}))
	check(t, err)
	f.destroyed.mu.Lock()
	for _, c := range ends {
		check(t, c.Close())
	}
	for deadline := time.Now().Add(5 * time.Second); f.destroyed.drops() < connections; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d ends were lost: this tests nothing", f.destroyed.drops())
		}
	}
	f.destroyed.mu.Unlock()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		check(t, f.Finish(rows))
		finals := strings.Count(string(rows.Bytes()), final+"=true")
		if finals+f.Open() != 2*connections {
			t.Fatalf("%d ends, %d open", finals, f.Open())
		}
		if int64(f.Open()) == f.FinalsLost() {
			t.Logf("%d ends received, %d lost", finals, f.FinalsLost())
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d ends, %d lost of %d", finals, f.FinalsLost(), 2*connections)
		}
	}
}

// TestRepliesForWhichTheKernelHasNoRoom: what is asked for at once is more than
// the socket has room for. All of it is asked for again, by fewer at once.
func TestRepliesForWhichTheKernelHasNoRoom(t *testing.T) {
	ownNetwork(t)
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	check(t, err)
	defer listener.Close()
	var tuples []Tuple
	for i := range exactUpTo {
		client, err := net.Dial("tcp4", listener.Addr().String())
		check(t, err)
		defer client.Close()
		server, err := listener.Accept()
		check(t, err)
		defer server.Close()
		exchange(t, client, server, 1000+i)
		tuples = append(tuples, tuple(client))
	}
	for _, room := range []int{0, 5_000, 15_000} {
		c := dial(t)
		check(t, unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, room))
		for round := range 3 {
			var s Sample
			got := make(map[int]uint64)
			err := c.GetAll(TCP, tuples, &s, func(i int, err error) {
				check(t, err)
				if _, twice := got[i]; twice {
					t.Errorf("flow %d is told twice", i)
				}
				got[i], _ = s.Info.Value(FieldByName("bytes_acked"))
			})
			if err != nil || len(got) != len(tuples) {
				t.Fatalf("room for %d bytes, round %d: %d of %d, %v", room, round, len(got), len(tuples), err)
			}
			for i, acked := range got {
				if acked != uint64(1001+i) {
					t.Errorf("flow %d: %d bytes", i, acked)
				}
			}
		}
		n := 0
		check(t, c.Dump(Filter{}, new(Sample), func() { n++ }))
		if n != 2*len(tuples) {
			t.Errorf("a dump tells of %d sockets", n)
		}
		if c.most == atOnce {
			t.Errorf("there was room for all: this tests nothing")
		}
	}
}

// TestRequestThatFails: what is left of its replies does not get into those of the next.
func TestRequestThatFails(t *testing.T) {
	ownNetwork(t)
	for range 200 { // more than one part of a dump
		pair(t, "tcp4")
	}
	client, _, _ := pair(t, "tcp4")
	c := dial(t)
	for range 3 {
		c.sequence++
		c.request = c.request[:0]
		c.putHeader(dumpBothFamilies, netlink.Request|netlink.Dump, c.sequence)
		request := c.grow(dumpRequestLength)
		request[3] = extensions
		binary.NativeEndian.PutUint32(request[52:], connected)
		c.putEnd()
		check(t, c.write())
		n := 0
		if err := c.Dump(Filter{}, new(Sample), func() { n++ }); !errors.Is(err, unix.EBUSY) {
			t.Fatalf("a dump beside another: %v", err)
		}
		n = 0
		check(t, c.Dump(Filter{}, new(Sample), func() { n++ }))
		if n != 402 {
			t.Errorf("%d sockets, not 402", n)
		}
		var s Sample
		check(t, c.Get(TCP, tuple(client), &s))
	}
}
