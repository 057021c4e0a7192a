package ebpf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"dumbbell/collectors/clock"
	"dumbbell/collectors/row"
	"dumbbell/collectors/tcpinfo"
	"dumbbell/collectors/trace"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
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

// TestCauses: each cause of a reduction is counted, as often as other counters
// of the kernel have it, and no other.
func TestCauses(t *testing.T) {
	const wide = "tc qdisc add dev path root tbf rate 50mbit burst 3000 limit 1000000"
	type counts map[string]int64
	for name, test := range map[string]struct {
		queue   string // of the sender
		rule    string // of the receiver's filter, for data
		run     func(t *testing.T, p *path)
		want    func(t *testing.T, p *path) counts // beside those that are 0
		counted string                             // at least once
	}{
		"lost on the path": {
			wide, "numgen inc mod 60 5 drop", bulk,
			func(t *testing.T, p *path) counts {
				recoveries := p.moved(t, p.sender, "TcpExtTCPSackRecovery", "TcpExtTCPRenoRecovery")
				return counts{"fast_retransmits": recoveries, "signals_fast_retransmit": recoveries}
			},
			"signals_fast_retransmit",
		},
		"dropped by the own queue": {
			"tc qdisc add dev path root tbf rate 50mbit burst 3000 limit 3100", "", bulk,
			func(t *testing.T, p *path) counts {
				return counts{"send_stalls": p.drops(t), "signals_send_stall": p.reductions(t)}
			},
			"signals_send_stall",
		},
		"marked on the path": {
			wide, "numgen inc mod 60 5 %s ecn set ce", bulk,
			func(t *testing.T, p *path) counts { return counts{"signals_ecn": p.reductions(t)} },
			"signals_ecn",
		},
		"nothing arrives for a while": {
			wide, "", blackout,
			func(t *testing.T, p *path) counts { return counts{"signals_timeout": 1} },
			"signals_timeout",
		},
	} {
		for _, family := range []string{"ip", "ip6"} {
			t.Run(name+", "+family, func(t *testing.T) {
				complete(t, func(t *testing.T) (problems []string) {
					p := newPath(t, family)
					if test.rule != "" {
						rule := strings.ReplaceAll(test.rule, "%s", family)
						p.receiver.run(t, "nft add rule "+family+" t c meta l4proto tcp meta length gt 1000 "+rule)
					}
					p.sender.run(t, test.queue)
					test.run(t, p)
					got, want := p.values(t), test.want(t, p)
					if got[test.counted] == 0 {
						problems = append(problems, test.counted+" is 0")
					}
					want["segs_seen"] = p.info(t, "segs_in")
					want["signals_other"] = p.moved(t, p.sender, "TcpExtTCPLossProbeRecovery")
					want["dup_acks_in"] = p.moved(t, p.receiver, "TcpExtTCPOFOQueue", "TcpExtTCPDSACKOldSent", "TcpExtTCPDSACKOfoSent")
					for name, v := range got {
						if strings.HasPrefix(name, "signals_") {
							want["congestion_signals"] += v
						}
					}
					for name, v := range got {
						if !strings.HasPrefix(name, "rtt_") && v != want[name] {
							problems = append(problems, fmt.Sprintf("%s is %d, want %d", name, v, want[name]))
						}
					}
					t.Log(got)
					return problems
				})
			})
		}
	}
}

func bulk(t *testing.T, p *path) { p.transfer(t, 500_000) }

// blackout loses all packets until a second timeout.
func blackout(t *testing.T, p *path) {
	p.transfer(t, 100_000)
	p.receiver.run(t, "nft insert rule "+p.family()+" t c meta l4proto tcp drop")
	_, err := p.client.Write(make([]byte, 10_000))
	check(t, err)
	for deadline := time.Now().Add(10 * time.Second); p.info(t, "backoff") < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no second timeout")
		}
	}
	p.receiver.run(t, "nft flush chain "+p.family()+" t c")
	_, err = io.CopyN(io.Discard, p.server, 10_000)
	check(t, err)
	p.transfer(t, 100_000)
}

// reductions is how often the sender entered CWR, by the kernel's own trace.
func (p *path) reductions(t *testing.T) int64 {
	clock, err := clock.New()
	check(t, err)
	rows := row.NewRows(clock)
	check(t, p.events.Finish(rows))
	return int64(strings.Count(string(rows.Bytes()), "tcp_event,event=ca_state ca_state=2i"))
}

// complete repeats a test until it finds nothing wrong: a kernel may skip
// programs, as where one would interrupt itself.
func complete(t *testing.T, test func(t *testing.T) (problems []string)) {
	for attempt := range 20 {
		var problems []string
		if !t.Run(fmt.Sprint("attempt ", attempt), func(t *testing.T) {
			problems = test(t)
			t.Log(strings.Join(problems, "; "))
		}) {
			return
		}
		if len(problems) == 0 {
			return
		}
	}
	t.Error("no attempt found all")
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

// TestRTT: each exchange gives a sample, no longer than itself; the smallest is
// what the kernel has as min_rtt, and their mean moves as the kernel's srtt.
func TestRTT(t *testing.T) {
	complete(t, func(t *testing.T) (problems []string) {
		const n = 200
		p := newPath(t, "ip")
		var sum, least, most, longest, srtt, before int64
		p.exchange(t, n, func(took time.Duration) {
			longest = max(longest, took.Microseconds())
			v := p.values(t)
			last := v["rtt_last_us"]
			if v["rtt_samples"] != before {
				before = v["rtt_samples"]
				sum, most = sum+last, max(most, last)
				if least == 0 || last < least {
					least = last
				}
				srtt += last - srtt>>3 // eight times the mean, from 0: the first is soon forgotten
			}
		})
		got := p.values(t)
		kernel := p.info(t, "srtt_us")
		t.Log(got, "srtt", kernel, srtt>>3, "longest exchange", longest)
		// The last sample is told by the next segment.
		if got["rtt_samples"] < n-1 || got["rtt_sum_us"] != sum || got["rtt_max_us"] != most || got["rtt_min_us"] != least || most > longest {
			problems = append(problems, fmt.Sprintf("%v; own count: sum %d, min %d, max %d, longest exchange %d", got, sum, least, most, longest))
		}
		if minimum := p.info(t, "min_rtt_us"); minimum != least {
			problems = append(problems, fmt.Sprintf("the kernel's minimum is %d, not %d", minimum, least))
		}
		if d := kernel - srtt>>3; d < -2 || d > 2 {
			problems = append(problems, fmt.Sprintf("the kernel's mean is %d, that of the samples %d", kernel, srtt>>3))
		}
		return problems
	})
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

// TestRows: rows of a connection have its counters, the last one too, and then
// nothing is kept of it.
func TestRows(t *testing.T) {
	flow, client, server := loopback(t)
	counters := begin(t, func() (*Counters, error) { return OpenFlows([]tcpinfo.Flow{flow}) })
	id := cookie(t, flow.Tuple)
	flows, err := tcpinfo.NewFlows([]tcpinfo.Flow{flow})
	check(t, err)
	defer flows.Close()
	flows.Extend(unclosed{counters})
	clock, err := clock.New()
	check(t, err)
	rows := row.NewRows(clock)
	pingPong(t, client, server, 10)
	check(t, flows.Sample(rows))
	check(t, server.Close())
	check(t, client.Close())
	for deadline := time.Now().Add(5 * time.Second); flows.Open() > 0; time.Sleep(time.Millisecond) {
		check(t, flows.Finish(rows))
		if time.Now().After(deadline) {
			t.Fatal("the connection does not end")
		}
	}
	lines := strings.Split(strings.TrimSpace(string(rows.Bytes())), "\n")
	if len(lines) != 2 || !strings.Contains(lines[1], "final=true") {
		t.Fatalf("%d rows: %s", len(lines), rows.Bytes())
	}
	for _, line := range lines {
		for _, name := range Fields[:rttLast] {
			if !strings.Contains(line, ","+name+"=") {
				t.Errorf("no %s in %s", name, line)
			}
		}
	}
	if v, err := counters.Read(id); v != nil || err != nil {
		t.Errorf("%v is kept, %v", v, err)
	}
}

type unclosed struct{ *Counters }

func (unclosed) Close() error { return nil }

// TestOthers: what is not asked for is not counted.
func TestOthers(t *testing.T) {
	p := newPath(t, "ip")
	p.transfer(t, 10_000)
	var conn *tcpinfo.Conn
	p.receiver.do(t, func() (err error) { conn, err = tcpinfo.Dial(); return err })
	defer conn.Close()
	var there tcpinfo.Sample
	check(t, conn.Get(tcpinfo.TCP, p.tuple.Mirror(), &there))
	if v, err := p.counters.Read(there.Cookie); v != nil || err != nil {
		t.Errorf("the other end is counted, in another network namespace: %v, %v", v, err)
	}
}

// TestTooMany: connections beyond those that can be counted are an error, and
// not without counters.
func TestTooMany(t *testing.T) {
	flow, client, server := loopback(t)
	spec, err := specification([]uint16{flow.Tuple.Local.Port()}, 1)
	check(t, err)
	spec.Maps["connections"].MaxEntries = 1
	counters := begin(t, func() (*Counters, error) { return load(spec, fallback...) })
	pingPong(t, client, server, 100)
	_, here := counters.Read(cookie(t, flow.Tuple))
	_, there := counters.Read(cookie(t, flow.Tuple.Mirror()))
	refused := errors.Join(here, there)
	if refused == nil || !strings.Contains(refused.Error(), "more than 1 conn") {
		t.Error(refused)
	}
}

// TestPrivileges: two capabilities are enough, and without them it is said
// which there should be.
func TestPrivileges(t *testing.T) {
	begin(t, func() (*Counters, error) { return OpenPorts(nil) })
	for name, test := range map[string]struct {
		capabilities uint64
		want         error
	}{
		"none":                    {0, ErrUnavailable},
		"CAP_BPF":                 {1 << unix.CAP_BPF, ErrUnavailable},
		"CAP_BPF and CAP_PERFMON": {1<<unix.CAP_BPF | 1<<unix.CAP_PERFMON, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var c *Counters
			err := onThread(func() (err error) {
				has := [2]unix.CapUserData{
					{Effective: uint32(test.capabilities), Permitted: uint32(test.capabilities)},
					{Effective: uint32(test.capabilities >> 32), Permitted: uint32(test.capabilities >> 32)},
				}
				check(t, unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &has[0]))
				c, err = OpenPorts(nil)
				return err
			})
			if err == nil {
				defer c.Close()
			}
			if !errors.Is(err, test.want) || err != nil && !strings.Contains(err.Error(), "CAP_BPF and CAP_PERFMON") {
				t.Errorf("error %v, want %v", err, test.want)
			}
		})
	}
}

// TestObjectIsOfTheSource: each line that counters.o says that it was made of is
// that line of counters.c, and the counters have the same names.
func TestObjectIsOfTheSource(t *testing.T) {
	source, err := os.ReadFile("counters.c")
	check(t, err)
	lines := strings.Split(string(source), "\n")
	spec, err := specification(nil, 0)
	check(t, err)
	seen := 0
	for _, p := range spec.Programs {
		for _, i := range p.Instructions {
			line, ok := i.Source().(*btf.Line)
			if !ok || line.LineNumber() == 0 {
				continue // made by the compiler
			}
			seen++
			if n := int(line.LineNumber()); n > len(lines) || lines[n-1] != line.Line() {
				t.Fatalf("counters.o is not of this counters.c, at line %d: make ebpf", n)
			}
		}
	}
	if seen < 100 {
		t.Errorf("counters.o tells only %d lines of its source", seen)
	}
	members := spec.Maps["connections"].Value.(*btf.Struct).Members[0].Type.(*btf.Struct).Members
	var names []string
	for _, m := range members {
		names = append(names, m.Name)
	}
	if !slices.Equal(names, Fields[:]) {
		t.Errorf("counters.o counts %v, Fields are %v", names, Fields)
	}
}

// TestObjectIsReproducible: the compiler that make ebpf uses gives the same bytes.
func TestObjectIsReproducible(t *testing.T) {
	for _, tool := range []string{"make", "clang-14", "llvm-strip-14", "/usr/include/bpf/bpf_helpers.h"} {
		_, err := exec.LookPath(tool)
		if _, missing := os.Stat(tool); err != nil && missing != nil {
			t.Skip(err)
		}
	}
	made := filepath.Join(t.TempDir(), "counters.o")
	out, err := exec.Command("make", "--no-print-directory", "-C", "../..", "ebpf", "EBPF_OBJECT="+made).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	again, err := os.ReadFile(made)
	check(t, err)
	if !bytes.Equal(again, object) {
		t.Error("counters.o is not what make ebpf makes of counters.c")
	}
}

// BenchmarkSegment is what the kernel spends in the programs at each segment
// that arrives, of a connection that is counted and of one that is not.
func BenchmarkSegment(b *testing.B) {
	for name, open := range map[string]func(tcpinfo.Flow) (*Counters, error){
		"counted":     func(f tcpinfo.Flow) (*Counters, error) { return OpenFlows([]tcpinfo.Flow{f}) },
		"not counted": func(tcpinfo.Flow) (*Counters, error) { return OpenFlows(nil) },
	} {
		b.Run(name, func(b *testing.B) {
			flow, client, server := loopback(b)
			counters := begin(b, func() (*Counters, error) { return open(flow) })
			stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
			check(b, err)
			defer stats.Close()
			for b.Loop() {
				pingPong(b, client, server, 1)
			}
			s, err := counters.collection.Programs["tcp_probe"].Stats()
			check(b, err)
			b.ReportMetric(float64(s.Runtime.Nanoseconds())/float64(s.RunCount), "ns/segment")
		})
	}
}

// BenchmarkRead is what a sample of one connection spends on its counters.
func BenchmarkRead(b *testing.B) {
	flow, client, server := loopback(b)
	counters := begin(b, func() (*Counters, error) { return OpenFlows([]tcpinfo.Flow{flow}) })
	pingPong(b, client, server, 1)
	id := cookie(b, flow.Tuple)
	b.ReportAllocs()
	for b.Loop() {
		if v, err := counters.Read(id); v == nil || err != nil {
			b.Fatal(v, err)
		}
	}
}
