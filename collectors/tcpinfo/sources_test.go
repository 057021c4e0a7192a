package tcpinfo

import (
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"dumbbell/collectors/clock"
	"dumbbell/collectors/row"
	"dumbbell/collectors/spool"

	"golang.org/x/sys/unix"
)

// fieldsOf returns the fields of the rows of a series, in order of time.
func fieldsOf(t testing.TB, rows *row.Rows, series string) (all []map[string]string) {
	t.Helper()
	for line := range strings.Lines(string(rows.Bytes())) {
		if !strings.HasPrefix(line, series+" ") {
			continue
		}
		text, _, _ := strings.Cut(line[len(series)+1:], " ")
		fields := make(map[string]string)
		for _, f := range strings.Split(text, ",") {
			name, value, _ := strings.Cut(f, "=")
			fields[name] = strings.TrimSuffix(strings.Trim(value, `"`), "i")
		}
		all = append(all, fields)
	}
	return all
}

func flows(t testing.TB, tuples ...Tuple) *Flows {
	t.Helper()
	var list []Flow
	for i, tuple := range tuples {
		list = append(list, Flow{Tags: row.Tags{"flow": fmt.Sprint(i)}, Tuple: tuple})
	}
	f, err := NewFlows(list)
	check(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// finish gathers rows until all that were sampled have ended.
func finish(t testing.TB, f *Flows, rows *row.Rows, want int, series string) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		check(t, f.Finish(rows))
		if n := strings.Count(string(rows.Bytes()), final+"=true"); n >= want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the end of %s was not seen: %s", series, rows.Bytes())
		}
	}
}

// TestShortSocketLeavesItsTotals: a connection of a few ms, between two
// samples 100 ms apart, has a last row at each end, with all that it did.
func TestShortSocketLeavesItsTotals(t *testing.T) {
	for _, network := range []string{"tcp4", "tcp6"} {
		t.Run(network, func(t *testing.T) {
			listener, err := net.Listen(network, map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0"}[network])
			check(t, err)
			defer listener.Close()
			local := freeAddr(t, network)
			remote := listener.Addr().(*net.TCPAddr).AddrPort()
			there := Tuple{local.AddrPort(), remote}
			f, rows := flows(t, there, there.Mirror()), newRows(t)
			check(t, f.Sample(rows))

			began := time.Now()
			client, err := (&net.Dialer{LocalAddr: local}).Dial(network, remote.String())
			check(t, err)
			server, err := listener.Accept()
			check(t, err)
			exchange(t, client, server, 100_000)
			check(t, client.Close())
			check(t, server.Close())
			lived := time.Since(began)

			finish(t, f, rows, 2, "both ends")
			sender, receiver := fieldsOf(t, rows, "tcp_info,flow=0"), fieldsOf(t, rows, "tcp_info,flow=1")
			if len(sender) != 1 || len(receiver) != 1 {
				t.Fatalf("%d and %d rows after %v: %s", len(sender), len(receiver), lived, rows.Bytes())
			}
			t.Logf("the connection was open for %v", lived)
			sent, err := strconv.Atoi(sender[0]["bytes_sent"])
			check(t, err)
			again, err := strconv.Atoi(sender[0]["bytes_retrans"]) // a busy machine makes loss probes
			check(t, err)
			if sent-again != 100_000 {
				t.Errorf("sender: %d bytes sent, %d of them again", sent, again)
			}
			for name, want := range map[string]string{"bytes_acked": "100002", "final": "true"} { // SYN and FIN count
				if sender[0][name] != want {
					t.Errorf("sender: %s is %s, not %s", name, sender[0][name], want)
				}
			}
			// The receiver's count has its peer's FIN if that came first.
			if got := receiver[0]["bytes_received"]; got != "100000" && got != "100001" {
				t.Errorf("receiver: bytes_received is %s", got)
			}
			if err := f.Finish(rows); f.Open() != 0 || err != nil || f.FinalsLost() != 0 {
				t.Errorf("%d open, %d lost, %v", f.Open(), f.FinalsLost(), err)
			}
		})
	}
}

func freeAddr(t testing.TB, network string) *net.TCPAddr {
	t.Helper()
	l, err := net.Listen(network, map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0"}[network])
	check(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr)
}

// TestManyFlows: above the limit of exact requests a dump finds the same.
func TestManyFlows(t *testing.T) {
	const connections = exactUpTo/2 + 5
	var tuples []Tuple
	for i := range connections {
		client, server, _ := pair(t, []string{"tcp4", "tcp6"}[i%2])
		exchange(t, client, server, 1000+i)
		tuples = append(tuples, tuple(client), tuple(client).Mirror())
	}
	all, rows := flows(t, tuples...), newRows(t)
	if len(tuples) <= exactUpTo {
		t.Fatal("not enough for a dump")
	}
	check(t, all.Sample(rows))
	exact, err := Dial()
	check(t, err)
	defer exact.Close()
	var s Sample
	for i, tuple := range tuples {
		got := fieldsOf(t, rows, fmt.Sprint("tcp_info,flow=", i))
		if len(got) != 1 {
			t.Fatalf("flow %d has %d rows", i, len(got))
		}
		check(t, exact.Get(TCP, tuple, &s))
		want, one := newRows(t), row.NewSeries("x", nil)
		want.Begin(one)
		s.AddFields(want)
		want.End(time.Now())
		for name, value := range fieldsOf(t, want, "x")[0] {
			if strings.HasPrefix(name, "last_") || name == "mono_ns" || strings.HasPrefix(name, "timer") {
				continue
			}
			if got[0][name] != value {
				t.Errorf("flow %d: %s is %s in a dump, %s alone", i, name, got[0][name], value)
			}
		}
	}
}

func TestFilter(t *testing.T) {
	var ports []uint16
	var clients []net.Conn
	for range 20 {
		client, _, _ := pair(t, "tcp4")
		clients = append(clients, client)
		ports = append(ports, tuple(client).Remote.Port())
	}
	own, err := CgroupID("/sys/fs/cgroup" + cgroupOf(t))
	check(t, err)
	c := dial(t)
	for name, test := range map[string]struct {
		filter Filter
		want   int
	}{
		"one port":              {Filter{Ports: ports[3:4]}, 2},
		"local port of clients": {Filter{Ports: []uint16{tuple(clients[0]).Local.Port()}}, 2},
		"all ports":             {Filter{Ports: ports}, 40},
		"no socket's port":      {Filter{Ports: []uint16{1}}, 0},
		"own cgroup and ports":  {Filter{Ports: ports[:5], Cgroup: own}, 10},
		"another cgroup":        {Filter{Ports: ports, Cgroup: own + 1<<40}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if test.filter.Cgroup != 0 && c.Dump(Filter{Cgroup: own}, new(Sample), func() {}) != nil {
				t.Skip("the kernel knows no cgroups of sockets")
			}
			n := 0
			var s Sample
			check(t, c.Dump(test.filter, &s, func() { n++ }))
			if n != test.want {
				t.Errorf("%d sockets, want %d", n, test.want)
			}
		})
	}
}

func cgroupOf(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/cgroup")
	check(t, err)
	m := regexp.MustCompile(`(?m)^0::(.*)$`).FindSubmatch(b)
	if m == nil {
		t.Skip("no cgroup of version 2")
	}
	return string(m[1])
}

// TestSlots: a socket that ends leaves its slot to the next, and a short one
// that was never listed has its last row all the same.
func TestSlots(t *testing.T) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	check(t, err)
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).AddrPort().Port()
	s, err := NewSockets(row.Tags{"host": "here"}, "slot", Filter{Ports: []uint16{port}})
	check(t, err)
	defer s.Close()
	rows := newRows(t)
	for i := range 5 {
		client, err := net.Dial("tcp4", listener.Addr().String())
		check(t, err)
		server, err := listener.Accept()
		check(t, err)
		if i%2 == 0 {
			check(t, s.Sample(rows))
		}
		check(t, client.Close())
		check(t, server.Close())
		for deadline := time.Now().Add(5 * time.Second); strings.Count(string(rows.Bytes()), final+"=true") < 2*i+2; time.Sleep(time.Millisecond) {
			check(t, s.Sample(rows))
			if time.Now().After(deadline) {
				t.Fatalf("ends are missing: %s", rows.Bytes())
			}
		}
	}
	cookies := make(map[string]bool)
	for _, series := range []string{"tcp_info,host=here,slot=0", "tcp_info,host=here,slot=1"} {
		for _, fields := range fieldsOf(t, rows, series) {
			cookies[fields["cookie"]] = true
			if !strings.HasSuffix(fields["local"], fmt.Sprint(":", port)) && !strings.HasSuffix(fields["remote"], fmt.Sprint(":", port)) {
				t.Errorf("a socket of another port: %v", fields)
			}
		}
	}
	if len(cookies) != 10 || strings.Contains(string(rows.Bytes()), "slot=2") {
		t.Errorf("%d sockets: %s", len(cookies), rows.Bytes())
	}
}

// TestAgainstSS: of a connection at rest, ss and the sampler agree on every
// field that both print.
func TestAgainstSS(t *testing.T) {
	if _, err := exec.LookPath("ss"); err != nil {
		t.Skip("needs iproute2: ", err)
	}
	for _, control := range []string{"cubic", "bbr"} {
		t.Run(control, func(t *testing.T) {
			client, server, _ := pair(t, "tcp4")
			if raw, err := client.SyscallConn(); err == nil {
				var refused error
				check(t, raw.Control(func(fd uintptr) {
					refused = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, control)
				}))
				if refused != nil {
					t.Skip(refused)
				}
			}
			exchange(t, client, server, 3_000_000)
			exchange(t, server, client, 20_000)
			for _, tuple := range []Tuple{tuple(client), tuple(client).Mirror()} {
				awaitRest(t, tuple)
				f, before, after := flows(t, tuple), newRows(t), newRows(t)
				check(t, f.Sample(before))
				out, err := exec.Command("ss", "-tinmoeHO", "src", tuple.Local.String(), "dst", tuple.Remote.String()).Output()
				check(t, err)
				check(t, f.Sample(after))
				compare(t, string(out), fieldsOf(t, before, "tcp_info,flow=0")[0], fieldsOf(t, after, "tcp_info,flow=0")[0])
			}
		})
	}
}

// awaitRest waits until a socket has nothing to do; keep-alive does not count.
func awaitRest(t *testing.T, tuple Tuple) {
	t.Helper()
	c := dial(t)
	var s Sample
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		check(t, c.Get(TCP, tuple, &s))
		idle, _ := s.Info.Value(FieldByName("last_ack_recv_ms"))
		quiet, _ := s.Info.Value(FieldByName("last_data_recv_ms"))
		if (s.Timer == 0 || s.Timer == 2) && idle > 100 && quiet > 100 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("timer %d, last ACK %d ms ago", s.Timer, idle)
		}
	}
}

// asSS are names of ss that differ from ours, with what our value is multiplied by.
var asSS = map[string]struct {
	name   string
	factor float64
}{
	"rtt": {"srtt_us", 1e-3}, "rttvar": {"rttvar_us", 1e-3}, "rto": {"rto_us", 1e-3}, "ato": {"ato_us", 1e-3}, "minrtt": {"min_rtt_us", 1e-3},
	"rcv_rtt": {"rcv_rtt_us", 1e-3}, "mss": {"snd_mss", 1}, "rcvmss": {"rcv_mss", 1}, "cwnd": {"snd_cwnd", 1}, "ssthresh": {"snd_ssthresh", 1},
	"pacing_rate": {"pacing_rate_Bps", 8}, "delivery_rate": {"delivery_rate_Bps", 8}, "busy": {"busy_time_us", 1e-3},
	"rwnd_limited": {"rwnd_limited_us", 1e-3}, "sndbuf_limited": {"sndbuf_limited_us", 1e-3}, "notsent": {"notsent_bytes", 1}, "app_limited": {"delivery_rate_app_limited", 1},
	"retrans": {"total_retrans", 1}, "bw": {"bbr_bw_Bps", 8}, "mrtt": {"bbr_min_rtt_us", 1e-3}, "pacing_gain": {"bbr_pacing_gain", 1}, "cwnd_gain": {"bbr_cwnd_gain", 1},
	"r": {"skmem_rmem_alloc_bytes", 1}, "rb": {"skmem_rcvbuf_bytes", 1}, "t": {"skmem_wmem_alloc_bytes", 1}, "tb": {"skmem_sndbuf_bytes", 1},
	"f": {"skmem_fwd_alloc_bytes", 1}, "w": {"skmem_wmem_queued_bytes", 1}, "o": {"skmem_optmem_bytes", 1}, "bl": {"skmem_backlog_bytes", 1}, "d": {"skmem_drops", 1},
	"lastsnd": {"last_data_sent_ms", 1}, "lastrcv": {"last_data_recv_ms", 1}, "lastack": {"last_ack_recv_ms", 1},
}

// compare checks each value in the output of ss, such as
//
//	ESTAB 0 0 a:p b:q ino:1 sk:2 cgroup:/ <-> skmem:(r0,rb131072,t0,...) ts sack cubic wscale:7,7 rto:204 rtt:0.03/0.02 ...
func compare(t *testing.T, ss string, before, after map[string]string) {
	t.Helper()
	values := make(map[string]string)
	words := strings.Fields(ss)
	for i, w := range words {
		switch name, value, ok := strings.Cut(w, ":"); {
		case strings.HasPrefix(w, "skmem:("):
			for _, part := range strings.Split(strings.Trim(value, "()"), ",") {
				m := regexp.MustCompile(`^([a-z]+)(\d+)$`).FindStringSubmatch(part)
				values[m[1]] = m[2]
			}
		case strings.HasPrefix(w, "bbr:("):
			for _, part := range strings.Split(strings.Trim(value, "()"), ",") {
				k, v, _ := strings.Cut(part, ":")
				values[k] = v
			}
		case name == "wscale" && ok:
			values["snd_wscale"], values["rcv_wscale"], _ = strings.Cut(value, ",")
		case name == "rtt" && ok:
			values["rtt"], values["rttvar"], _ = strings.Cut(value, "/")
		case name == "retrans" && ok:
			_, values["retrans"], _ = strings.Cut(value, "/")
		case w == "app_limited":
			values[w] = "1"
		case w == "pacing_rate" || w == "delivery_rate":
			values[w] = words[i+1]
		case name == "sk" && ok:
			cookie, err := strconv.ParseUint(value, 16, 64)
			check(t, err)
			values["cookie"] = strconv.FormatUint(cookie, 10)
		case ok && i > 4 && name != "ino" && name != "cgroup" && name != "timer":
			values[name] = value
		}
	}
	if len(values) < 25 {
		t.Fatalf("ss printed %d values: %s", len(values), ss)
	}
	for name, text := range values {
		text = regexp.MustCompile(`^[0-9.e+]+`).FindString(text)
		want, err := strconv.ParseFloat(text, 64)
		check(t, err)
		ours, factor := name, 1.0
		if as, ok := asSS[name]; ok {
			ours, factor = as.name, as.factor
		}
		value, ok := before[ours]
		if !ok {
			t.Errorf("ss prints %s, the sampler has no %s", name, ours)
			continue
		}
		got, err := strconv.ParseFloat(value, 64)
		check(t, err)
		got *= factor
		if strings.HasPrefix(ours, "last_") { // time passes
			later, err := strconv.ParseFloat(after[ours], 64)
			check(t, err)
			if want < got || want > later {
				t.Errorf("%s: ss says %v, the sampler %v before and %v after it", ours, want, got, later)
			}
			continue
		}
		if math.Abs(got-want) > 1e-5*math.Abs(want) { // ss prints six digits
			t.Errorf("%s: ss says %v, the sampler %v", ours, want, got)
		}
	}
	t.Logf("%d values agree", len(values))
	if !strings.Contains(ss, before["congestion_control"]) {
		t.Errorf("congestion control %s is not in %s", before["congestion_control"], ss)
	}
}

// TestDestroyedCountsWhatItLost: if nobody takes the ends of sockets, those
// beyond the limit are counted.
func TestDestroyedCountsWhatItLost(t *testing.T) {
	d, err := DialDestroyed(func(*Sample) bool { return false })
	check(t, err)
	defer d.Close()
	d.ended = make([]Sample, keep)
	b := reply(t, 248)
	message := append(make([]byte, headerLength), b...)
	message[0], message[1] = byte(len(message)), byte(len(message)>>8)
	d.receive(message, nil, time.Now(), func(*Sample) bool { return true })
	d.receive(message[:50], nil, time.Now(), nil)
	d.receive(message, nil, time.Now(), func(*Sample) bool { return false })
	if d.Lost() != 2 || len(d.Take()) != keep || len(d.Take()) != 0 {
		t.Errorf("%d lost", d.Lost())
	}
}

// BenchmarkSample is a loop of samples of one flow as the agent takes them,
// into a spool.
func BenchmarkSample(b *testing.B) {
	client, _, _ := pair(b, "tcp4")
	f := flows(b, tuple(client))
	clock, err := clock.New()
	check(b, err)
	w, _, err := spool.Open(b.TempDir()+"/spool.lp", clock)
	check(b, err)
	for b.Loop() {
		if err := w.Add(f.Sample); err != nil {
			b.Fatal(err)
		}
		if err := w.FlushDue(0); err != nil {
			b.Fatal(err)
		}
	}
	check(b, w.Close())
}
