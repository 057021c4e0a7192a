package socket

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// connected makes two sockets, the first of which is connected with the other.
func connected(t *testing.T) (from, to int) {
	t.Helper()
	var fds [2]int
	for i := range fds {
		fd, err := Open(netip.MustParseAddr("127.0.0.1"))
		if err == nil {
			t.Cleanup(func() { unix.Close(fd) })
			err = unix.Bind(fd, Sockaddr(netip.MustParseAddrPort("127.0.0.1:0")))
		}
		if err == nil {
			_, err = SetReceiveBuffer(fd, 16<<20)
		}
		if err != nil {
			t.Fatal(err)
		}
		fds[i] = fd
	}
	addr, err := LocalAddr(fds[1])
	if err == nil {
		err = unix.Connect(fds[0], Sockaddr(addr))
	}
	if err != nil {
		t.Fatal(err)
	}
	return fds[0], fds[1]
}

// TestBatch: many trains leave with one call, the last datagram is shorter, and
// what is dropped is a message.
func TestBatch(t *testing.T) {
	const size, count, short = 1000, 200, 10
	for _, gso := range []bool{true, false} {
		t.Run(fmt.Sprint("GSO ", gso), func(t *testing.T) {
			from, to := connected(t)
			b := NewBatch(from, size, count)
			if !b.GSO {
				t.Skip("this kernel has no UDP GSO")
			}
			b.GSO = gso
			fill := func() {
				for i := range count {
					n := size
					if i == count-1 {
						n = short
					}
					if b.Full() {
						t.Fatalf("full with %d datagrams", i)
					}
					copy(b.Place(), bytes.Repeat([]byte{byte(i)}, n))
					if !b.Add(n) {
						t.Fatalf("datagram %d is not taken", i)
					}
				}
			}
			fill()
			dropped := b.Drop()
			if want := map[bool]int{true: 64, false: 1}[gso]; dropped != want || b.Len() != count-want || !b.Full() {
				t.Fatalf("%d are dropped, %d are left", dropped, b.Len())
			}
			if err := b.Send(); err != nil || b.Len() != 0 || b.Full() {
				t.Fatalf("%v, %d are left", err, b.Len())
			}
			buffer := make([]byte, 2*size)
			for i := dropped; i < count; i++ {
				n, _, err := unix.Recvfrom(to, buffer, unix.MSG_DONTWAIT)
				if want := map[bool]int{true: short, false: size}[i == count-1]; err != nil || n != want || buffer[0] != byte(i) || buffer[n-1] != byte(i) {
					t.Fatalf("datagram %d: %d bytes of %d, %v", i, n, buffer[0], err)
				}
			}
		})
	}
}

// TestLonger: a train takes nothing that is longer than its first datagram, nor
// anything after a shorter one.
func TestLonger(t *testing.T) {
	from, _ := connected(t)
	b := NewTrain(from, 100, true)
	if !b.Add(50) || b.Add(51) || b.Full() || !b.Add(49) || !b.Full() || b.Len() != 2 {
		t.Errorf("%d datagrams, full %v", b.Len(), b.Full())
	}
	if b.Clear(); b.Len() != 0 || !b.Add(100) {
		t.Errorf("%d datagrams after Clear", b.Len())
	}
	if one := NewTrain(from, 100, false); !one.Add(100) || !one.Full() || one.GSO {
		t.Error("more than one datagram without trains")
	}
}
