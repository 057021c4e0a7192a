package http

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"dumbbell/collectors/clock"
	"dumbbell/collectors/row"
	"dumbbell/collectors/tcpinfo"

	"golang.org/x/sys/unix"
)

const (
	closed    = 7 // of include/net/tcp_states.h: after TIME_WAIT has begun
	closeWait = 8
)

// loopback is the address of a server whose port the kernel chooses.
func loopback(address string) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(address), 0)
}

// A flow is a server and what it reports.
type flow struct {
	Config
	mu     sync.Mutex
	served map[int][]Served // by the number of their fetch
	end    func() ServerResult
}

// serve runs a server until the test, or end, ends it.
func serve(t *testing.T, config Config) *flow {
	t.Helper()
	return serveClient(t, config, netip.Addr{})
}

// serveClient serves one client alone.
func serveClient(t *testing.T, config Config, client netip.Addr) *flow {
	t.Helper()
	f := &flow{Config: config, served: make(map[int][]Served)}
	f.Path, f.CongestionControl = "/run/measurement/web/", "reno"
	server, err := NewServer(ServerConfig{Config: f.Config, Client: client, Report: func(s Served) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.served[s.Number] = append(f.served[s.Number], s)
	}})
	if err != nil {
		t.Fatal(err)
	}
	f.Server = server.Addr()
	ctx, cancel := context.WithCancel(t.Context())
	var result ServerResult
	done := make(chan struct{})
	go func() {
		defer close(done)
		var err error
		if result, err = server.Run(ctx); err != nil {
			t.Error(err)
		}
		server.Close()
	}()
	f.end = func() ServerResult {
		cancel()
		<-done
		return result
	}
	t.Cleanup(func() { f.end() })
	return f
}

// await waits until so many requests were served to their end.
func (f *flow) await(t *testing.T, requests int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		f.mu.Lock()
		n := len(f.served)
		f.mu.Unlock()
		if n == requests {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d requests were served", n, requests)
		}
	}
}

// fetch runs a client of a flow, and returns what it reports.
func fetch(t *testing.T, ctx context.Context, config ClientConfig) (all []Fetched, result ClientResult, err error) {
	t.Helper()
	config.From = config.Server.Addr()
	config.Report = func(f Fetched) { all = append(all, f) }
	client, err := NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	result, err = client.Run(ctx, time.Now())
	return all, result, err
}

func value(t *testing.T, socket *tcpinfo.Own, name string) uint64 {
	t.Helper()
	if socket == nil {
		t.Fatalf("no %s of no socket", name)
	}
	v, ok := socket.Info.Value(tcpinfo.FieldByName(name))
	if !ok {
		t.Fatalf("%s is not known", name)
	}
	return v
}

func TestFetches(t *testing.T) {
	for name, test := range map[string]struct {
		address    string
		bytes      int64
		persistent bool
	}{
		"small":           {"127.0.0.1", 1, false},
		"large":           {"127.0.0.1", 80 << 20, false}, // more than is handed to the kernel at once
		"IPv6":            {"::1", 768_000, false},
		"persistent":      {"127.0.0.1", 76_800, true},
		"persistent IPv6": {"::1", 768, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const count = 5
			f := serve(t, Config{Server: loopback(test.address), Bytes: test.bytes})
			var started []time.Time
			before := time.Now()
			all, result, err := fetch(t, t.Context(), ClientConfig{
				Config: f.Config, Count: count, Persistent: test.persistent, Started: func(at time.Time) { started = append(started, at) },
			})
			if err != nil {
				t.Fatal(err)
			}
			f.await(t, count)
			served := f.end()
			connections := count
			if test.persistent {
				connections = 1
			}
			if want := (ClientResult{Asked: count, Begun: count, Done: count, Connections: connections}); result != want {
				t.Errorf("client %+v, want %+v", result, want)
			}
			if want := (ServerResult{Served: count, Connections: int64(connections)}); served != want {
				t.Errorf("server %+v, want %+v", served, want)
			}
			if len(started) != 1 || !started[0].Equal(all[0].Begin) || started[0].Before(before) {
				t.Errorf("started %v, the first fetch at %v", started, all[0].Begin)
			}
			var header uint64 // its length, by the first fetch
			for i, got := range all {
				if got.Number != i+1 || got.ReceivedBytes != test.bytes || got.Err != nil || got.Cut != 0 {
					t.Fatalf("fetch %d: %+v", i+1, got)
				}
				opened := i == 0 || !test.persistent
				if (got.Connect > 0) != opened || got.FirstByte <= got.Connect || got.Completion < got.FirstByte {
					t.Errorf("fetch %d: connected after %v, first byte after %v, all after %v", i+1, got.Connect, got.FirstByte, got.Completion)
				}
				if i > 0 && got.Begin.Before(all[i-1].Begin.Add(all[i-1].Completion)) {
					t.Errorf("fetch %d begins at %v, before the end of the one before", i+1, got.Begin)
				}
				if len(f.served[i+1]) != 1 {
					t.Fatalf("fetch %d was served %d times", i+1, len(f.served[i+1]))
				}
				sent := f.served[i+1][0]
				if sent.SentBytes != test.bytes || sent.Err != nil || sent.Begin.Before(got.Begin) {
					t.Errorf("fetch %d: %+v", i+1, sent)
				}
				for _, socket := range []*tcpinfo.Own{got.Socket, sent.Socket} {
					if socket.CongestionControl != "reno" {
						t.Errorf("fetch %d: congestion control %q", i+1, socket.CongestionControl)
					}
				}
				// The counts of both kernels are of all that was sent since the connection began.
				total := value(t, sent.Socket, "bytes_sent") - value(t, sent.Socket, "bytes_retrans")
				nth := uint64(1)
				if test.persistent {
					nth = uint64(i + 1)
				}
				if i == 0 {
					header = total - uint64(test.bytes)
				}
				if total != nth*(header+uint64(test.bytes)) {
					t.Errorf("fetch %d: the kernel has sent %d bytes", i+1, total)
				}
				if unacked := value(t, sent.Socket, "unacked"); unacked != 0 {
					t.Errorf("fetch %d: %d segments were not yet acknowledged", i+1, unacked)
				}
				if i > 0 && (got.Socket.Cookie == all[0].Socket.Cookie) != test.persistent {
					t.Errorf("fetch %d is over socket %d, the first over %d", i+1, got.Socket.Cookie, all[0].Socket.Cookie)
				}
				// The server waits for packets under way, so that no port of the client has to.
				if !test.persistent && (value(t, got.Socket, "state") != closeWait || value(t, sent.Socket, "state") != closed) {
					t.Errorf("fetch %d: states %d and %d", i+1, value(t, got.Socket, "state"), value(t, sent.Socket, "state"))
				}
			}
		})
	}
}

// TestTime fetches for a time, with pauses.
func TestTime(t *testing.T) {
	t.Parallel()
	const think = 20 * time.Millisecond
	f := serve(t, Config{Server: loopback("127.0.0.1"), Bytes: 1000})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	all, result, err := fetch(t, ctx, ClientConfig{Config: f.Config, Think: think})
	if err != nil {
		t.Fatal(err)
	}
	if result.Asked != 0 || result.Done == 0 || result.Done > 15 || result.Begun != len(all) || result.Done+result.Cut != result.Begun {
		t.Errorf("%+v of %d reports", result, len(all))
	}
	for i := range len(all) - 1 {
		if pause := all[i+1].Begin.Sub(all[i].Begin) - all[i].Completion; pause < think {
			t.Errorf("fetch %d began %v after the one before", i+2, pause)
		}
	}
}

// TestForeign asks for what is no fetch of this flow.
func TestForeign(t *testing.T) {
	t.Parallel()
	f := serve(t, Config{Server: loopback("127.0.0.1"), Bytes: 1000})
	for _, path := range []string{"/other/measurement/web/1", f.Path, f.Path + "one", "/"} {
		conn, err := net.Dial("tcp", f.Server.String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
		if answer, err := io.ReadAll(conn); len(answer) > 0 || err != nil && !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%s is answered with %q, %v", path, answer, err)
		}
		conn.Close()
	}
	if got := f.end(); got.Foreign != 4 || got.Served != 0 || got.Connections != 0 || len(f.served) != 0 {
		t.Errorf("%+v, %+v", got, f.served)
	}
}

func TestRefusedConfigs(t *testing.T) {
	if _, err := NewServer(ServerConfig{Config: Config{Server: loopback("127.0.0.1"), Bytes: 1, CongestionControl: "frugal"}}); err == nil ||
		!strings.Contains(err.Error(), "TCP_CONGESTION frugal") {
		t.Errorf("error %v", err)
	}
	if _, err := NewServer(ServerConfig{Config: Config{Server: loopback("127.0.0.1"), CongestionControl: "cubic"}}); err == nil {
		t.Error("a server of nothing is accepted")
	}
	if _, err := NewClient(ClientConfig{}); err == nil {
		t.Error("a client of nothing is accepted")
	}
}

// TestSampled samples the sockets of both ends during a body that takes as long
// as its client reads.
func TestSampled(t *testing.T) {
	t.Parallel()
	sockets := tcpinfo.NewOwnSockets(row.Tags{"flow": "web", "side": "sender"})
	f := serve(t, Config{Server: loopback("127.0.0.1"), Bytes: 1 << 30, Sockets: sockets})
	clock, err := clock.New()
	if err != nil {
		t.Fatal(err)
	}
	rows := func() string {
		rows := row.NewRows(clock)
		if err := sockets.Sample(rows); err != nil {
			t.Error(err)
		}
		return string(rows.Bytes())
	}
	if got := rows(); got != "" {
		t.Errorf("rows of no connection: %s", got)
	}
	conn, err := net.Dial("tcp", f.Server.String())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET %s1 HTTP/1.1\r\nHost: x\r\n\r\n", f.Path)
	if _, err := io.ReadFull(conn, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	got := rows()
	for _, want := range []string{"tcp_info,flow=web,side=sender ", "snd_cwnd=", "bytes_sent=", `congestion_control="reno"`, "cookie="} {
		if strings.Count(got, want) != 1 {
			t.Errorf("%s is not once in %s", want, got)
		}
	}
	conn.Close()
	f.await(t, 1)
	f.end()
	if got := rows(); got != "" {
		t.Errorf("rows after the end: %s", got)
	}
}

func TestRows(t *testing.T) {
	clock, err := clock.New()
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	for want, report := range map[string]interface {
		Time() time.Time
		AddFields(*row.Rows)
	}{
		"http_fetch fetch=7i,connect_ns=1i,first_byte_ns=2i,completion_ns=3i,received_bytes=1000i,mono_ns=": Fetched{
			Number: 7, Begin: begin, Connect: 1, FirstByte: 2, Completion: 3, ReceivedBytes: 1000},
		`http_fetch fetch=8i,first_byte_ns=2i,received_bytes=9i,error="after 9 of 1000 bytes: unexpected EOF",cookie=5i,congestion_control="cubic",`: Fetched{
			Number: 8, Begin: begin, FirstByte: 2, ReceivedBytes: 9, Err: fmt.Errorf("after 9 of 1000 bytes: %w", io.ErrUnexpectedEOF),
			Socket: &tcpinfo.Own{Cookie: 5, CongestionControl: "cubic"}},
		"http_fetch fetch=9i,cut_ns=4i,received_bytes=0i,mono_ns=": Fetched{Number: 9, Begin: begin, Cut: 4},
		"http_fetch fetch=7i,sent_bytes=1000i,mono_ns=":            Served{Number: 7, Begin: begin, SentBytes: 1000},
	} {
		rows := row.NewRows(clock)
		rows.Begin(row.NewSeries("http_fetch", nil))
		report.AddFields(rows)
		rows.End(report.Time())
		if got := string(rows.Bytes()); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, fmt.Sprintf(" %d\n", begin.UnixNano())) {
			t.Errorf("row %s\nwant %s", got, want)
		}
	}
}
