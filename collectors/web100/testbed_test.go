package web100

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"dumbbell/collectors/clock"
	"dumbbell/collectors/row"
	"dumbbell/collectors/tcpinfo"
	"dumbbell/collectors/trace"

	"golang.org/x/sys/unix"
)

// A testbed is two hosts and a router between them, each a network namespace.
type testbed struct {
	t                        *testing.T
	sender, router, receiver *namespace
}

// A namespace has a thread of its own, with which it ends.
type namespace struct {
	thread int
	do     chan func()
}

func newNamespace(t *testing.T) *namespace {
	n := &namespace{do: make(chan func())}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		n.thread = unix.Gettid()
		made <- unix.Unshare(unix.CLONE_NEWNET)
		for f := range n.do {
			f()
		}
	}()
	check(t, <-made)
	t.Cleanup(func() { close(n.do) })
	return n
}

// run calls a function in the namespace.
func (n *namespace) run(f func()) {
	done := make(chan struct{})
	n.do <- func() { defer close(done); f() }
	<-done
}

func (n *namespace) sh(t *testing.T, commands ...string) (said string) {
	t.Helper()
	for _, command := range commands {
		n.run(func() {
			out, err := exec.Command("sh", "-c", command).CombinedOutput()
			if said = string(out); err != nil {
				t.Fatalf("%s: %v: %s", command, err, out)
			}
		})
	}
	return said
}

// newTestbed makes hosts 10.9.1.1 and 10.9.2.1, whose NICs send no more than a packet at once.
func newTestbed(t *testing.T) *testbed {
	t.Helper()
	if _, err := exec.LookPath("tc"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs root and iproute2")
	}
	b := &testbed{t, newNamespace(t), newNamespace(t), newNamespace(t)}
	small := "gso_max_segs 1 gso_max_size 2000"
	for i, host := range []*namespace{b.sender, b.receiver} {
		near, far := fmt.Sprintf("10.9.%d.1", i+1), fmt.Sprintf("10.9.%d.254", i+1)
		name := []string{"left", "right"}[i]
		b.router.sh(t,
			fmt.Sprintf("ip link add %s type veth peer name net netns %d", name, host.thread),
			fmt.Sprintf("ip link set %s %s up && ip address add %s/24 dev %s", name, small, far, name))
		host.sh(t, fmt.Sprintf("ip link set net %s up && ip address add %s/24 dev net && ip route add default via %s", small, near, far))
	}
	b.router.sh(t, "echo 1 >/proc/sys/net/ipv4/ip_forward")
	return b
}

// flows are of connections that dial makes; what they carry is thrown away.
func (b *testbed) flows(n int) (flows []tcpinfo.Flow) {
	b.t.Helper()
	var listener net.Listener
	var err error
	b.receiver.run(func() { listener, err = net.Listen("tcp4", "10.9.2.1:5001") })
	check(b.t, err)
	b.t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			server, err := listener.Accept()
			if err != nil {
				return
			}
			go io.Copy(io.Discard, server)
		}
	}()
	for i := range n {
		// Tracing knows no namespaces: the ports are those of this test alone.
		tuple, err := tcpinfo.ParseTuple(fmt.Sprintf("10.9.1.1:%d,10.9.2.1:5001", 10000+(os.Getpid()*8)%20000+i))
		check(b.t, err)
		flows = append(flows, tcpinfo.Flow{Tags: row.Tags{"flow": strconv.Itoa(i)}, Tuple: tuple})
	}
	return flows
}

func (b *testbed) dial(flow tcpinfo.Flow) (client net.Conn) {
	b.t.Helper()
	var err error
	b.sender.run(func() {
		local := net.TCPAddrFromAddrPort(flow.Tuple.Local)
		client, err = (&net.Dialer{LocalAddr: local, Timeout: 5 * time.Second}).Dial("tcp4", flow.Tuple.Remote.String())
	})
	check(b.t, err)
	b.t.Cleanup(func() {
		client.(*net.TCPConn).SetLinger(0) // it does not go on without its namespace
		client.Close()
	})
	return client
}

// followed samples and traces connections of the sender while something happens to them.
func (b *testbed) followed(flows []tcpinfo.Flow, happens func()) []*Connection {
	b.t.Helper()
	clock, err := clock.New()
	check(b.t, err)
	connections := make([]*Connection, len(flows))
	for i := range connections {
		connections[i] = new(Connection)
	}
	traced, err := trace.NewSource(flows, nil, clock, "")
	if errors.Is(err, trace.ErrUnavailable) {
		b.t.Skip(err)
	}
	check(b.t, err)
	defer func() { check(b.t, traced.Close()) }()
	traced.Observe = func(flow int, r *trace.Record) { connections[flow].Trace(r) }
	var sockets *tcpinfo.Flows
	b.sender.run(func() { sockets, err = tcpinfo.NewFlows(flows) })
	check(b.t, err)
	defer sockets.Close()
	sockets.Observe = func(flow int, s *tcpinfo.Sample, _ bool) { connections[flow].Observe(s) }
	done := make(chan struct{})
	go func() { defer close(done); happens() }()
	rows := row.NewRows(clock)
	for ended := false; !ended; rows.Reset() {
		select {
		case <-done:
			ended = true
		case <-time.After(5 * time.Millisecond):
		}
		check(b.t, sockets.Sample(rows))
		check(b.t, traced.Sample(rows))
	}
	check(b.t, sockets.Finish(rows))
	check(b.t, traced.Finish(rows))
	if traced.Lost() > 0 {
		b.t.Fatalf("%d records were lost", traced.Lost())
	}
	return connections
}

// counters are those of the sender's namespace, such as TcpExtTCPTimeouts.
func (b *testbed) counters() map[string]int64 {
	b.t.Helper()
	var text []byte
	var err error
	b.sender.run(func() { text, err = os.ReadFile("/proc/thread-self/net/netstat") })
	check(b.t, err)
	found := make(map[string]int64)
	for lines := strings.Split(string(text), "\n"); len(lines) > 1; lines = lines[2:] {
		names, values := strings.Fields(lines[0]), strings.Fields(lines[1])
		for i := range names[1:] {
			n, err := strconv.ParseInt(values[i+1], 10, 64)
			check(b.t, err)
			found[strings.TrimSuffix(names[0], ":")+names[i+1]] = n
		}
	}
	return found
}

// send writes until an end.
func send(client net.Conn, d time.Duration) {
	client.SetWriteDeadline(time.Now().Add(d))
	for chunk := make([]byte, 1<<16); ; {
		if _, err := client.Write(chunk); err != nil {
			return
		}
	}
}

// awaitLastACK waits until the peer has acknowledged all that was written.
func awaitLastACK(t *testing.T, client net.Conn) {
	for deadline := time.Now().Add(5 * time.Second); outstanding(t, client) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Error("after 5 s not all is acknowledged")
			return
		}
	}
}

// outstanding is how many bytes the peer has not acknowledged.
func outstanding(t *testing.T, client net.Conn) (bytes int) {
	raw, err := client.(*net.TCPConn).SyscallConn()
	check(t, err)
	check(t, raw.Control(func(fd uintptr) { bytes, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }))
	check(t, err)
	return bytes
}

// capture counts duplicate ACKs that reach the sender, until it is asked for them;
// one that a later ACK has overtaken is one too.
func (b *testbed) capture() (count func() int64) {
	b.t.Helper()
	const ipv4 = 0x0008 // ETH_P_IP, in network order
	var fd int
	var err error
	b.sender.run(func() { fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, ipv4) })
	check(b.t, err)
	check(b.t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20))
	return func() (duplicates int64) {
		defer unix.Close(fd)
		var next, acked uint32
		packet := make([]byte, 1<<16)
		for {
			n, from, err := unix.Recvfrom(fd, packet, unix.MSG_DONTWAIT)
			if err != nil {
				return duplicates
			}
			ip := packet[:n]
			if ip[9] != unix.IPPROTO_TCP {
				continue
			}
			tcp := ip[int(ip[0]&15)*4:]
			length := int(binary.BigEndian.Uint16(ip[2:])) - int(ip[0]&15)*4 - int(tcp[12]>>4)*4
			flags := tcp[13]
			if from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING {
				if end := binary.BigEndian.Uint32(tcp[4:]) + uint32(length); next == 0 || int32(end-next) > 0 {
					next = end
				}
				continue
			}
			ack := binary.BigEndian.Uint32(tcp[8:])
			const fin, syn = 1, 2
			if length == 0 && flags&(fin|syn) == 0 && int32(ack-acked) <= 0 && next != acked {
				duplicates++
			}
			if flags&syn != 0 || int32(ack-acked) >= 0 {
				acked = ack
			}
		}
	}
}
