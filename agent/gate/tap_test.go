package gate

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"dumbbell/collectors/tcpinfo"
	"dumbbell/transports/atou/config"
	"dumbbell/transports/atou/proto"

	"golang.org/x/sys/unix"
)

func needTap(t *testing.T, protocol tcpinfo.Protocol, tuple tcpinfo.Tuple, moreThan int, with ...PayloadByte) *Tap {
	t.Helper()
	heard, err := OpenTap(protocol, tuple, moreThan, with...)
	if errors.Is(err, unix.EPERM) {
		t.Skip("needs CAP_NET_RAW")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { heard.Close() })
	return heard
}

func tupleOf(c net.Conn) tcpinfo.Tuple {
	return tcpinfo.Tuple{
		Local:  netip.MustParseAddrPort(c.LocalAddr().String()),
		Remote: netip.MustParseAddrPort(c.RemoteAddr().String()),
	}
}

// pair is a connection over loopback, both ends.
func pair(t *testing.T, network, address string) (client, server net.Conn) {
	t.Helper()
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Skip(err) // no IPv6 here
	}
	defer listener.Close()
	if client, err = net.Dial(network, listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// datagrams is a socket that sends them over loopback, where another takes them.
func datagrams(t *testing.T) (client net.Conn) {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if client, err = net.Dial("udp", server.LocalAddr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client
}

func write(t *testing.T, c net.Conn, size int) {
	t.Helper()
	if _, err := c.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
}

func TestTapHearsDataOfItsConnectionAlone(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			t.Parallel()
			client, server := pair(t, "tcp", address)
			other, _ := pair(t, "tcp", address)
			heard := needTap(t, tcpinfo.TCP, tupleOf(client), 37)

			write(t, client, 37)   // not more than was asked for
			write(t, server, 5000) // of the other way, and what acknowledges it
			write(t, other, 5000)
			if _, err := client.Read(make([]byte, 5000)); err != nil {
				t.Fatal(err)
			}
			before := time.Now()
			write(t, client, 5000)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			left, err := heard.Next(ctx)
			after := time.Now()
			if err != nil || left.Before(before) || left.After(after) {
				t.Errorf("data left %v after it was written, within %v: %v", left.Sub(before), after.Sub(before), err)
			}
		})
	}
}

func TestTapTellsWhenAPacketLeftHoweverLateItIsAsked(t *testing.T) {
	t.Parallel()
	client, server := pair(t, "tcp", "127.0.0.1:0")
	heard := needTap(t, tcpinfo.TCP, tupleOf(client), 0)
	// The kernel begins to take times soon after it is asked to, not at once.
	for began := time.Now(); ; {
		write(t, client, 100)
		if _, err := server.Read(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		arrived := time.Now()
		time.Sleep(50 * time.Millisecond) // as on a host that is busy
		left, err := heard.Next(t.Context())
		if err == nil && !left.After(arrived) {
			return
		}
		if err != nil || time.Since(began) > 10*time.Second {
			t.Fatalf("data left %v after it arrived: %v", left.Sub(arrived), err)
		}
	}
}

func TestTapHearsDatagrams(t *testing.T) {
	t.Parallel()
	client := datagrams(t)
	heard := needTap(t, tcpinfo.UDP, tupleOf(client), 4)
	write(t, client, 4)
	before := time.Now()
	write(t, client, 4+1)
	if left, err := heard.Next(t.Context()); err != nil || left.Before(before) {
		t.Errorf("a datagram left %v after it was sent: %v", left.Sub(before), err)
	}
}

// TestTapHearsDataOfAtou: not what opens a flow, which may be as large.
func TestTapHearsDataOfAtou(t *testing.T) {
	t.Parallel()
	client := datagrams(t)
	heard := needTap(t, tcpinfo.UDP, tupleOf(client), config.HeaderBytes-1, PayloadByte{proto.TypeAt, byte(proto.TypeData)})
	datagram := make([]byte, 1000)
	for _, kind := range []proto.Type{proto.TypeHello, proto.TypeOpen, proto.TypeFin} {
		proto.PutPrefix(datagram, kind, proto.ID{})
		if _, err := client.Write(datagram); err != nil {
			t.Fatal(err)
		}
	}
	before := time.Now()
	proto.PutPrefix(datagram, proto.TypeData, proto.ID{})
	if _, err := client.Write(datagram); err != nil {
		t.Fatal(err)
	}
	if left, err := heard.Next(t.Context()); err != nil || left.Before(before) {
		t.Errorf("data left %v after it was sent: %v", left.Sub(before), err)
	}
}

func TestTapGivesUpAtItsTime(t *testing.T) {
	t.Parallel()
	client, _ := pair(t, "tcp", "127.0.0.1:0")
	heard := needTap(t, tcpinfo.TCP, tupleOf(client), 37)
	write(t, client, 37)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if left, err := heard.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("heard something at %v, error %v", left, err)
	}
}
