package ebpf

import (
	"encoding/json"
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

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// begin opens counters, or skips the test where there are none.
func begin(t testing.TB, open func() (*Counters, error)) *Counters {
	t.Helper()
	c, err := open()
	if errors.Is(err, ErrUnavailable) {
		t.Skip(err)
	}
	check(t, err)
	t.Cleanup(func() { check(t, c.Close()) })
	return c
}

// A host is a network namespace, which ends with the test.
type host struct{ namespace *os.File }

func newHost(t testing.TB) (h host) {
	t.Helper()
	check(t, onThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		h.namespace, err = os.Open("/proc/thread-self/ns/net")
		return err
	}))
	t.Cleanup(func() { h.namespace.Close() })
	return h
}

// onThread runs f on a thread of its own, which ends with it.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

func (h host) do(t testing.TB, f func() error) {
	t.Helper()
	check(t, onThread(func() error {
		if err := unix.Setns(int(h.namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	}))
}

func (h host) run(t testing.TB, commands ...string) (out string) {
	t.Helper()
	h.do(t, func() error {
		for _, command := range commands {
			b, err := exec.Command("sh", "-c", command).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%s: %w: %s", command, err, b)
			}
			out += string(b)
		}
		return nil
	})
	return out
}

// counters are those of the whole host, such as TcpExtTCPTimeouts.
func (h host) counters(t testing.TB) map[string]int64 {
	t.Helper()
	all := make(map[string]int64)
	h.do(t, func() error {
		for _, name := range []string{"netstat", "snmp"} {
			b, err := os.ReadFile("/proc/thread-self/net/" + name)
			if err != nil {
				return err
			}
			lines := strings.Split(strings.TrimSpace(string(b)), "\n")
			for i := 0; i+1 < len(lines); i += 2 {
				names, values := strings.Fields(lines[i]), strings.Fields(lines[i+1])
				for k, name := range names[1:] {
					v, err := strconv.ParseInt(values[k+1], 10, 64)
					if err != nil {
						return err
					}
					all[strings.TrimSuffix(names[0], ":")+name] = v
				}
			}
		}
		return nil
	})
	return all
}

// A path joins a sender, whose connection is counted, and a receiver. Every
// segment is a packet of its own and is acknowledged at once.
type path struct {
	sender, receiver host
	client, server   *net.TCPConn
	counters         *Counters
	events           *trace.Source
	conn             *tcpinfo.Conn
	tuple            tcpinfo.Tuple
	before           [2]map[string]int64
}

func newPath(t testing.TB, family string) *path {
	t.Helper()
	for _, tool := range []string{"ip", "tc", "nft"} {
		if _, err := exec.LookPath(tool); err != nil || os.Geteuid() != 0 {
			t.Skip("needs root, iproute2 and nftables")
		}
	}
	if out, err := exec.Command("nft", "list", "tables").CombinedOutput(); err != nil {
		t.Skipf("nftables do not work here: %s", out)
	}
	p := &path{sender: newHost(t), receiver: newHost(t)}
	from, to := "10.9.0.1", "10.9.0.2"
	if family == "ip6" {
		from, to = "fd09::1", "fd09::2"
	}
	peer := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), p.receiver.namespace.Fd())
	p.sender.run(t,
		"sysctl -q net.ipv4.tcp_ecn=1 net.ipv4.tcp_no_metrics_save=1",
		"ip link add path type veth peer name path netns "+peer,
		"ip address add 10.9.0.1/24 dev path; ip address add fd09::1/64 dev path nodad",
		"ip link set path addrgenmode none gso_max_segs 1 up",
		// What else the host sends of itself, which the same queue might drop.
		"nft 'table ip6 t { chain c { type filter hook output priority 0; ip6 daddr ff02::16 drop; }; }'",
	)
	p.receiver.run(t,
		"sysctl -q net.ipv4.tcp_ecn=1 net.ipv4.tcp_comp_sack_nr=0",
		"ip address add 10.9.0.2/24 dev path noprefixroute; ip address add fd09::2/64 dev path nodad noprefixroute",
		"ip link set path gso_max_segs 1 up",
		"ip route add 10.9.0.0/24 dev path quickack 1; ip route add fd09::/64 dev path quickack 1",
		"nft 'table "+family+" t { chain c { type filter hook prerouting priority 0; }; }'",
	)
	var l net.Listener
	p.receiver.do(t, func() (err error) { l, err = net.Listen("tcp", net.JoinHostPort(to, "0")); return err })
	defer l.Close()
	p.sender.do(t, func() (err error) {
		local, err := net.Listen("tcp", net.JoinHostPort(from, "0")) // a port that is free
		if err != nil {
			return err
		}
		p.tuple = tcpinfo.Tuple{Local: local.Addr().(*net.TCPAddr).AddrPort(), Remote: l.Addr().(*net.TCPAddr).AddrPort()}
		if err := local.Close(); err != nil {
			return err
		}
		p.conn, err = tcpinfo.Dial()
		return err
	})
	t.Cleanup(func() { p.conn.Close() })
	p.counters = begin(t, func() (c *Counters, err error) {
		p.sender.do(t, func() error { c, err = OpenFlows([]tcpinfo.Flow{{Tuple: p.tuple}}); return nil })
		return c, err
	})
	clock, err := clock.New()
	check(t, err)
	p.events, err = trace.NewSource([]tcpinfo.Flow{{Tuple: p.tuple}}, nil, clock, "")
	if errors.Is(err, trace.ErrUnavailable) {
		t.Skip(err)
	}
	check(t, err)
	t.Cleanup(func() { check(t, p.events.Close()) })
	t.Logf("stalls without the kernel's verdict: %v", p.counters.Inexact())
	p.sender.do(t, func() error {
		c, err := (&net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(p.tuple.Local)}).Dial("tcp", l.Addr().String())
		if err == nil {
			p.client = c.(*net.TCPConn)
		}
		return err
	})
	t.Cleanup(func() { p.client.Close() })
	s, err := l.Accept()
	check(t, err)
	p.server = s.(*net.TCPConn)
	t.Cleanup(func() { p.server.Close() })
	p.before = [2]map[string]int64{p.sender.counters(t), p.receiver.counters(t)}
	return p
}

// transfer returns when n bytes have been received and acknowledged.
func (p *path) transfer(t testing.TB, n int) {
	t.Helper()
	done := make(chan error, 1)
	go func() { _, err := io.CopyN(io.Discard, p.server, int64(n)); done <- err }()
	_, err := p.client.Write(make([]byte, n))
	check(t, err)
	check(t, <-done)
	for deadline := time.Now().Add(10 * time.Second); p.info(t, "unacked") > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not all was acknowledged")
		}
	}
}

func (p *path) info(t testing.TB, name string) int64 {
	t.Helper()
	var s tcpinfo.Sample
	check(t, p.conn.Get(tcpinfo.TCP, p.tuple, &s))
	v, _ := s.Info.Value(tcpinfo.FieldByName(name))
	return int64(v)
}

// values are what has been counted.
func (p *path) values(t testing.TB) map[string]int64 {
	t.Helper()
	var s tcpinfo.Sample
	check(t, p.conn.Get(tcpinfo.TCP, p.tuple, &s))
	v, err := p.counters.Read(s.Cookie)
	check(t, err)
	if v == nil {
		t.Fatal("the connection is not counted")
	}
	named := make(map[string]int64)
	for i, value := range v.Known() {
		named[Fields[i]] = value
	}
	return named
}

// moved is how far counters of a host have moved, together.
func (p *path) moved(t testing.TB, of host, names ...string) (sum int64) {
	t.Helper()
	before, now := p.before[0], of.counters(t)
	if of == p.receiver {
		before = p.before[1]
	}
	for _, name := range names {
		if _, ok := now[name]; !ok {
			t.Fatalf("the kernel has no counter %s", name)
		}
		sum += now[name] - before[name]
	}
	return sum
}

// drops are those of the sender's own queue.
func (p *path) drops(t testing.TB) (sum int64) {
	t.Helper()
	var queues []struct{ Drops int64 }
	check(t, json.Unmarshal([]byte(p.sender.run(t, "tc -s -j qdisc show dev path")), &queues))
	for _, q := range queues {
		sum += q.Drops
	}
	return sum
}

func (p *path) family() string {
	if p.tuple.Local.Addr().Is4() {
		return "ip"
	}
	return "ip6"
}

// exchange sends a byte and awaits its echo, n times.
func (p *path) exchange(t *testing.T, n int, each func(took time.Duration)) {
	t.Helper()
	go io.Copy(p.server, p.server)
	b := make([]byte, 1)
	for range n {
		began := time.Now()
		_, err := p.client.Write(b)
		check(t, err)
		_, err = io.ReadFull(p.client, b)
		check(t, err)
		each(time.Since(began))
	}
}

// loopback returns both ends of a connection, the client's as a flow.
func loopback(t testing.TB) (flow tcpinfo.Flow, client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	client, err = net.Dial("tcp4", l.Addr().String())
	check(t, err)
	t.Cleanup(func() { client.Close() })
	server, err = l.Accept()
	check(t, err)
	t.Cleanup(func() { server.Close() })
	local, remote := client.LocalAddr().(*net.TCPAddr).AddrPort(), client.RemoteAddr().(*net.TCPAddr).AddrPort()
	return tcpinfo.Flow{Tags: row.Tags{"flow": "1"}, Tuple: tcpinfo.Tuple{Local: local, Remote: remote}}, client, server
}

// pingPong exchanges bytes over a connection.
func pingPong(t testing.TB, client, server net.Conn, n int) {
	t.Helper()
	b := make([]byte, 1)
	for range n {
		for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
			_, err := way[0].Write(b)
			check(t, err)
			_, err = io.ReadFull(way[1], b)
			check(t, err)
		}
	}
}

func cookie(t testing.TB, of tcpinfo.Tuple) uint64 {
	t.Helper()
	conn, err := tcpinfo.Dial()
	check(t, err)
	defer conn.Close()
	var s tcpinfo.Sample
	check(t, conn.Get(tcpinfo.TCP, of, &s))
	return s.Cookie
}
