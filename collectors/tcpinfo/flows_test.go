package tcpinfo

import (
	"fmt"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"dumbbell/collectors/clock"
	"dumbbell/collectors/row"
	"dumbbell/collectors/spool"
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

// TestDestroyedCountsWhatItLost: if nobody takes the ends of sockets, those
// beyond the limit are counted.
func TestDestroyedCountsWhatItLost(t *testing.T) {
	wanted := true
	d, err := DialDestroyed(func(*Sample) bool { return wanted })
	check(t, err)
	check(t, d.Close()) // so that it hears no other socket
	d.ended = make([]Sample, keep)
	b := reply(t, 248)
	message := append(make([]byte, headerLength), b...)
	message[0], message[1] = byte(len(message)), byte(len(message)>>8)
	d.add(message, time.Now())
	d.add(message[:50], time.Now())
	wanted = false
	d.add(message, time.Now())
	if d.Lost() != 2 || len(d.Take()) != keep || len(d.Take()) != 0 {
		t.Errorf("%d lost", d.Lost())
	}
}

// TestDestroyedReceivesWhatWasTold: an end that the kernel has told is received,
// though the goroutine may wait for a CPU.
func TestDestroyedReceivesWhatWasTold(t *testing.T) {
	var mine atomic.Pointer[Tuple]
	isMine := func(s *Sample) bool { return s.Tuple == *mine.Load() }
	mine.Store(new(Tuple))
	toldLast, err := DialDestroyed(isMine) // the kernel tells the newest first
	check(t, err)
	defer toldLast.Close()
	d, err := DialDestroyed(isMine)
	check(t, err)
	defer d.Close()
	for range 300 {
		client, server, _ := pair(t, "tcp4")
		local := tuple(client)
		mine.Store(&local)
		client.Close()
		server.Close()
		for len(toldLast.Take()) == 0 {
			runtime.Gosched()
		}
		d.Receive()
		if n := len(d.Take()); n != 1 {
			t.Fatalf("%d ends were taken of 1 that was told", n)
		}
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
