package web100

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
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

// TestChanges: what a connection does between states is told apart by what
// comes between them.
func TestChanges(t *testing.T) {
	type step = func(*history)
	to := func(state int64) step { return func(h *history) { h.change(state) } }
	segment := func(una int64) step { return func(h *history) { h.segment(probe{una: una}) } }
	for name, test := range map[string]struct {
		steps []step
		want  map[string]int64 // beside those that are 0
	}{
		"nothing":                      {[]step{to(disorder), segment(2), to(open)}, nil},
		"a stall":                      {[]step{to(cwr), segment(2), to(open)}, map[string]int64{"CongestionSignals": 1, "SendStall": 1}},
		"a stall that loses":           {[]step{to(cwr), segment(2), to(recovery)}, map[string]int64{"CongestionSignals": 1, "SendStall": 1, "FastRetran": 1}},
		"a loss that a probe repaired": {[]step{to(cwr), to(open)}, map[string]int64{"CongestionSignals": 1}},
		"fast retransmit":              {[]step{to(disorder), segment(2), to(recovery), segment(3), to(open)}, map[string]int64{"CongestionSignals": 1, "FastRetran": 1}},
		"a timeout that repeats":       {[]step{to(loss), to(loss), to(loss)}, map[string]int64{"CongestionSignals": 1, "Timeouts": 1, "AbruptTimeouts": 1, "SubsequentTimeouts": 2}},
		"one after duplicate ACKs":     {[]step{to(disorder), segment(1), to(loss)}, map[string]int64{"CongestionSignals": 1, "Timeouts": 1}},
		"one after progress in Loss":   {[]step{to(loss), segment(1), segment(2), to(loss)}, map[string]int64{"CongestionSignals": 2, "Timeouts": 2, "AbruptTimeouts": 1}},
		"one without it":               {[]step{to(loss), segment(1), to(recovery), segment(1), to(loss), segment(1)}, map[string]int64{"CongestionSignals": 2, "FastRetran": 1, "Timeouts": 1, "AbruptTimeouts": 1, "SubsequentTimeouts": 1}},
		"one in Recovery":              {[]step{to(recovery), segment(1), to(loss)}, map[string]int64{"CongestionSignals": 1, "FastRetran": 1, "Timeouts": 1}},
	} {
		c := Connection{history: history{began: true, expiredAt: -1}, info: make(tcpinfo.Info, 232)}
		for _, step := range append(append([]step{segment(1)}, test.steps...), segment(9)) {
			step(&c.history)
		}
		for _, variable := range []string{"CongestionSignals", "FastRetran", "Timeouts", "AbruptTimeouts", "SubsequentTimeouts", "SendStall"} {
			if got, grade := value(&c, variable); got != test.want[variable] || grade == Unavailable {
				t.Errorf("%s: %s is %d (%v), want %d", name, variable, got, grade, test.want[variable])
			}
		}
	}
}

func value(c *Connection, name string) (int64, Grade) {
	for i := range Variables {
		if Variables[i].Name == name {
			return Variables[i].of(c)
		}
	}
	panic(name)
}

// TestSegments: what is counted from one segment to the next.
func TestSegments(t *testing.T) {
	c := Connection{history: history{began: true}, info: make(tcpinfo.Info, 232)}
	set(c.info, "snd_mss", 1000)
	for _, p := range []probe{
		{nxt: 100, una: 0, cwnd: 10, ssthresh: 20},  // moves snd_una
		{nxt: 100, una: 50, cwnd: 11, ssthresh: 20}, // a duplicate, after slow start
		{nxt: 100, una: 50, cwnd: 20, ssthresh: 20, data: 1},
		{nxt: 100, una: 50, cwnd: 21, ssthresh: 20}, // acknowledges all
		{nxt: 100, una: 100, cwnd: 8, ssthresh: 20},
		{nxt: 100, una: 100, cwnd: 8, ssthresh: 20, receiveWindow: 7}, // nothing was outstanding
	} {
		c.history.segment(p)
	}
	for name, want := range map[string]int64{
		"DupAcksIn": 1, "SlowStart": 2, "CongAvoid": 1, "OtherReductions": 1, "MaxCwnd": 21_000, "CurRwinSent": 7, "SendStall": 0,
	} {
		if got, grade := value(&c, name); got != want || grade != Approximate {
			t.Errorf("%s is %d (%v), want %d", name, got, grade, want)
		}
	}
	set(c.info, "options", 8)
	if _, grade := value(&c, "SendStall"); grade != Unavailable {
		t.Error("of a connection with ECN, CWR is taken for a stall")
	}
	c.TraceLost()
	for _, name := range []string{"DupAcksIn", "SlowStart", "FastRetran", "SendStall", "AbruptTimeouts"} {
		if got, grade := value(&c, name); grade != Unavailable {
			t.Errorf("%s is %d without a whole trace", name, got)
		}
	}
}

// --- real connections -----------------------------------------------------------

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

// TestLosses: a router drops, and then lets nothing through for a while. What
// the trace counts is what the kernel counts of its only connection, and what
// is seen on the wire.
func TestLosses(t *testing.T) {
	b := newTestbed(t)
	b.router.sh(t, "tc qdisc add dev right root tbf rate 20mbit burst 6k limit 12k")
	flows := b.flows(1)
	wire := b.capture()
	connections := b.followed(flows, func() {
		client := b.dial(flows[0])
		send(client, 1500*time.Millisecond)
		b.router.sh(t, "ip link set right down")
		send(client, 800*time.Millisecond)
		b.router.sh(t, "ip link set right up")
		send(client, time.Second)
		// To the last ACK: after the own FIN the kernel has no more probes.
		for deadline := time.Now().Add(5 * time.Second); outstanding(t, client) > 0 && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
		}
	})
	c, counted := connections[0], b.counters()
	variable := func(name string) int64 { n, _ := value(c, name); return n }
	fast, timeouts, probes := counted["TcpExtTCPSackRecovery"], variable("Timeouts"), counted["TcpExtTCPLossProbeRecovery"]
	if fast == 0 || timeouts == 0 {
		t.Errorf("%d fast retransmits and %d timeouts are no test", fast, timeouts)
	}
	if got := variable("FastRetran"); got != fast {
		t.Errorf("%d fast retransmits, the kernel counts %d", got, fast)
	}
	if h := c.history; h.timeouts != timeouts || h.followingTimeouts != variable("SubsequentTimeouts") { // as tcp_info has them
		t.Errorf("%d timeouts and %d that followed, the kernel counts %d and %d", h.timeouts, h.followingTimeouts, timeouts, variable("SubsequentTimeouts"))
	}
	// A timeout in Recovery has no reduction of its own.
	if got, most := variable("CongestionSignals"), fast+timeouts+probes; got > most || got < most-timeouts+variable("AbruptTimeouts") {
		t.Errorf("%d signals, of %d fast retransmits, %d timeouts and %d losses that a probe repaired", got, fast, timeouts, probes)
	}
	if stalls, _ := value(c, "SendStall"); stalls != 0 {
		t.Errorf("%d stalls, of drops by a router", stalls)
	}
	duplicates := variable("DupAcksIn")
	// Those that find the socket busy may become one (tcp_add_backlog), and the last cannot be judged.
	if seen := wire(); seen < 20 || duplicates > seen || duplicates < seen*98/100-1 {
		t.Errorf("%d duplicate ACKs, %d were seen on the wire", duplicates, seen)
	}
	if variable("SlowStart") == 0 {
		t.Error("no slow start")
	}
	t.Logf("%d duplicate ACKs, %d fast retransmits, %d timeouts", duplicates, fast, timeouts)
}

// TestSendStalls: the sender's own queue drops. Mostly TCP is told of it at
// once; what it is not told of is lost to it as on the path.
func TestSendStalls(t *testing.T) {
	b := newTestbed(t)
	b.sender.sh(t, "tc qdisc add dev net root handle 1: htb default 1",
		"tc class add dev net parent 1: classid 1:1 htb rate 50mbit quantum 3000",
		"tc qdisc add dev net parent 1:1 handle 2: pfifo limit 3")
	flows := b.flows(4)
	connections := b.followed(flows, func() {
		done := make(chan struct{})
		for _, f := range flows {
			go func(client net.Conn) { send(client, 1500*time.Millisecond); done <- struct{}{} }(b.dial(f))
		}
		for range flows {
			<-done
		}
	})
	m := regexp.MustCompile(`dropped (\d+)`).FindStringSubmatch(b.sender.sh(t, "tc -s qdisc show dev net parent 1:1"))
	dropped, err := strconv.ParseInt(m[1], 10, 64)
	check(t, err)
	var stalls, fast int64
	for _, c := range connections {
		n, _ := value(c, "SendStall")
		stalls += n
		n, _ = value(c, "FastRetran")
		fast += n
	}
	if dropped == 0 || stalls <= fast || stalls+fast > dropped {
		t.Errorf("%d stalls and %d fast retransmits, of %d drops by the own queue", stalls, fast, dropped)
	}
	if counted := b.counters()["TcpExtTCPSackRecovery"]; fast != counted {
		t.Errorf("%d fast retransmits, the kernel counts %d", fast, counted)
	}
	t.Logf("%d stalls and %d fast retransmits of %d drops", stalls, fast, dropped)
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
