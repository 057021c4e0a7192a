package trace

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"dumbbell/collectors/clock"
	"dumbbell/collectors/row"
	"dumbbell/collectors/tcpinfo"

	"golang.org/x/sys/unix"
)

func newClock(t testing.TB) clock.Clock {
	t.Helper()
	clock, err := clock.New()
	check(t, err)
	return clock
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newSource traces, or skips the test where that is not possible.
func newSource(t *testing.T, clock clock.Clock, tuples ...tcpinfo.Tuple) *Source {
	t.Helper()
	var flows []tcpinfo.Flow
	for i, tuple := range tuples {
		flows = append(flows, tcpinfo.Flow{Tags: row.Tags{"flow": strconv.Itoa(i)}, Tuple: tuple})
	}
	s, err := NewSource(flows, row.Tags{"host": "here"}, clock, "")
	if errors.Is(err, ErrUnavailable) {
		t.Skip(err)
	}
	check(t, err)
	t.Cleanup(func() { check(t, s.Close()) })
	for _, e := range s.Events() {
		if e.Unavailable != nil {
			t.Skipf("%s: %v", e.Name, e.Unavailable)
		}
	}
	return s
}

// reserve returns a local address that is free, and a listener.
func reserve(t *testing.T, host string) (*net.TCPAddr, net.Listener) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	check(t, err)
	local := l.Addr().(*net.TCPAddr)
	check(t, l.Close())
	l, err = net.Listen("tcp", net.JoinHostPort(host, "0"))
	check(t, err)
	t.Cleanup(func() { l.Close() })
	return local, l
}

// connected traces a connection from one of its ends, or from both.
func connected(t *testing.T, clock clock.Clock, host string, both bool) (s *Source, client, server net.Conn) {
	t.Helper()
	local, listener := reserve(t, host)
	tuple := tcpinfo.Tuple{Local: local.AddrPort(), Remote: listener.Addr().(*net.TCPAddr).AddrPort()}
	tuples := []tcpinfo.Tuple{tuple}
	if both {
		tuples = append(tuples, tuple.Mirror())
	}
	s = newSource(t, clock, tuples...)
	client, err := (&net.Dialer{LocalAddr: local}).Dial("tcp", listener.Addr().String())
	check(t, err)
	t.Cleanup(func() { client.Close() })
	server, err = listener.Accept()
	check(t, err)
	t.Cleanup(func() { server.Close() })
	return s, client, server
}

func transfer(t *testing.T, client, server net.Conn, n int) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := io.CopyN(io.Discard, server, int64(n))
		done <- err
	}()
	_, err := client.Write(make([]byte, n))
	check(t, err)
	check(t, <-done)
}

// TestConnection: the life of a connection is there, in order, at the time at
// which it happened, and nothing of another.
func TestConnection(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		t.Run(host, func(t *testing.T) {
			clock := newClock(t)
			began := time.Now()
			s, client, server := connected(t, clock, host, true)
			rows := row.NewRows(clock)
			other, err := net.Dial("tcp", client.RemoteAddr().String()) // passes the filter of ports
			check(t, err)
			check(t, other.Close())
			transfer(t, client, server, 1_000_000)
			check(t, client.Close())
			check(t, server.Close())
			for deadline := time.Now().Add(5 * time.Second); !strings.Contains(string(rows.Bytes()), "tcp_event,event=state,flow=1 old_state=9i,state=7i"); time.Sleep(time.Millisecond) {
				check(t, s.Sample(rows))
				if time.Now().After(deadline) {
					t.Fatalf("the end is missing: %.2000s", rows.Bytes())
				}
			}
			ended := time.Now()
			var states, probes int
			last, unacknowledged := int64(0), int64(-1)
			events := regexp.MustCompile(`(?m)^(tcp_\w+)(?:,event=(\w+))?,flow=([01]) (\S+) (\d+)$`).FindAllStringSubmatch(string(rows.Bytes()), -1)
			for _, m := range events {
				stamp, err := strconv.ParseInt(m[5], 10, 64)
				check(t, err)
				if stamp < began.UnixNano() || stamp > ended.UnixNano() {
					t.Fatalf("at %d, not between %d and %d: %s", stamp, began.UnixNano(), ended.UnixNano(), m[0])
				}
				if stamp < last { // each CPU has a buffer of its own
					t.Fatalf("at %d, after one at %d: %s", stamp, last, m[0])
				}
				last = stamp
				if m[3] == "1" {
					continue
				}
				switch {
				case m[2] == "state":
					states++
				case m[1] == "tcp_probe":
					probes++
					una := regexp.MustCompile(`snd_una=(\d+)i`).FindStringSubmatch(m[4])
					v, err := strconv.ParseInt(una[1], 10, 64)
					check(t, err)
					if unacknowledged >= 0 && int32(uint32(v)-uint32(unacknowledged)) < 0 {
						t.Errorf("snd_una went back from %d to %d", unacknowledged, v)
					}
					unacknowledged = v
					if !strings.Contains(m[4], "snd_cwnd=") || !strings.Contains(m[4], "srtt_us=") {
						t.Fatal(m[0])
					}
				}
			}
			if states < 4 || probes < 3 || s.Lost() != 0 {
				t.Errorf("%d changes of state, %d probes, %d lost", states, probes, s.Lost())
			}
		})
	}
}

// TestLosses: where a queue drops, drops are counted by their reason and the
// retransmissions and changes of the congestion state that follow are there.
func TestLosses(t *testing.T) {
	if _, err := exec.LookPath("tc"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs root and iproute2")
	}
	runtime.LockOSThread() // never unlocked: the namespace ends with the thread
	check(t, unix.Unshare(unix.CLONE_NEWNET))
	for _, command := range []string{
		"ip link set lo mtu 1500 up",
		"tc qdisc add dev lo root tbf rate 20mbit burst 5000 limit 8000",
	} {
		if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	clock := newClock(t)
	s, client, server := connected(t, clock, "127.0.0.1", false)
	transfer(t, client, server, 300_000)
	rows := row.NewRows(clock)
	check(t, s.Finish(rows))
	got := string(rows.Bytes())
	if !strings.Contains(got, "drops,host=here,reason=QDISC_") {
		t.Error("no drop by the qdisc")
	}
	retransmits := strings.Count(got, "tcp_event,event=retransmit,flow=0 ")
	if retransmits == 0 && !strings.Contains(got, "event=ca_state,flow=0 ca_state=2i") {
		t.Errorf("neither a retransmission nor a reduction: %.3000s", got)
	}
	t.Logf("%d retransmissions, %d changes of the congestion state", retransmits, strings.Count(got, "event=ca_state"))
}

// TestLostIsCounted fills the buffer beyond its size before it is read.
func TestLostIsCounted(t *testing.T) {
	clock := newClock(t)
	s, client, server := connected(t, clock, "127.0.0.1", true)
	check(t, s.tracing.by.(*instance).write("buffer_size_kb", "8"))
	for range 1000 {
		transfer(t, client, server, 1)
	}
	rows := row.NewRows(clock)
	check(t, s.Finish(rows))
	if probes := strings.Count(string(rows.Bytes()), "tcp_probe,"); s.Lost() < 500 || probes == 0 || int64(probes)+s.Lost() < 2000 {
		t.Errorf("%d probes and %d lost of at least 2000", probes, s.Lost())
	}
}

func TestPortFilter(t *testing.T) {
	if got := portFilter([]uint16{5, 7}); got != "sport == 5 || dport == 5 || sport == 7 || dport == 7" {
		t.Error(got)
	}
	many := make([]uint16, 100)
	for i := range many {
		many[i] = uint16(1000 + i)
	}
	if got := portFilter(many); got != "(sport >= 1000 && sport <= 1099) || (dport >= 1000 && dport <= 1099)" {
		t.Error(got)
	}
}

// TestModuleEvents has all that is taken of the events of modules, as these define them.
func TestModuleEvents(t *testing.T) {
	for _, name := range moduleEvents {
		text, err := os.ReadFile(recorded + "6.12/" + filepath.Base(name) + ".format")
		check(t, err)
		f, err := parseFormat(text)
		check(t, err)
		if asked := connectionEvents[name].fields; len(f.pick(asked...)) != len(asked) {
			t.Errorf("%s has %v, asked for %v", name, f.fields, asked)
		}
	}
}

// TestPStreams are those of their flow, also where others have the same ports.
func TestPStreams(t *testing.T) {
	text, err := os.ReadFile(recorded + "6.12/pstream.format")
	check(t, err)
	f, err := parseFormat(text)
	check(t, err)
	clock := newClock(t)
	s := &Source{clock: clock, flows: make(map[tcpinfo.Tuple]*flow), rows: row.NewRows(clock)}
	handle := s.handler("rapid/pstream", f)
	client, server, another := netip.MustParseAddrPort("10.0.0.1:10001"), netip.MustParseAddrPort("10.0.0.2:5201"), netip.MustParseAddrPort("10.0.0.3:5201")
	for name, remote := range map[string]netip.AddrPort{"own": server, "another": another} {
		series := map[string]row.Series{"rapid/pstream": row.NewSeries("rapid", row.Tags{"flow": name})}
		s.flows[tcpinfo.Tuple{Local: client, Remote: remote}] = &flow{series: series}
	}
	record := func(from, to netip.AddrPort) []byte {
		data := make([]byte, f.fields["duration_ns"].offset+8)
		put := func(name string, value uint64) {
			at := f.fields[name]
			for i := range at.size {
				data[at.offset+i] = byte(value >> (8 * i))
			}
		}
		for name, end := range map[string]netip.AddrPort{"saddr": from, "daddr": to} {
			sockaddr := data[f.fields[name].offset:] // struct sockaddr_in
			sockaddr[0] = unix.AF_INET
			binary.BigEndian.PutUint16(sockaddr[2:], end.Port())
			copy(sockaddr[4:], end.Addr().AsSlice())
		}
		put("family", unix.AF_INET)
		put("packets", 64)
		put("verdict", 1)
		put("rate", 95_665_616)
		return data
	}
	handle(0, record(client, server))
	handle(0, record(server, client)) // the other end's
	handle(0, record(netip.MustParseAddrPort("10.0.0.4:10001"), server))
	rows := strings.Split(strings.TrimSpace(string(s.rows.Bytes())), "\n")
	if len(rows) != 1 || !strings.HasPrefix(rows[0], "rapid,flow=own id=0i,packets=64i,samples=0i,verdict=1i,") ||
		!strings.Contains(rows[0], ",available_bps=0i,rate_bps=95665616i,duration_ns=0i,") {
		t.Errorf("%q", rows)
	}
}
