package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"dumbbell/agent/kind"
	"dumbbell/agent/plan"
	"dumbbell/traffic/http"
	"dumbbell/traffic/tcp"
	"dumbbell/traffic/udp"

	"golang.org/x/sys/unix"
)

const (
	connectionsAsked = 10_000 // of each port
	connectionsHeld  = 2_000  // of them half open, over all ports
)

var strange = [4]byte{127, 0, 0, 2} // the strangers' address; that of the flows is 127.0.0.1

// strangersPlan has a flow of each kind that has a server, and a port that answers a tcp_ping.
func strangersPlan(t *testing.T) *plan.Plan {
	t.Helper()
	needIperf3(t)
	if err := buildAtou(); err != nil {
		t.Fatal(err)
	}
	p := loopbackPlan(t)
	p.Duration = 3500 * time.Millisecond
	own, cubic, rate := p.Own(), "cubic", int64(4e6)
	own.Sample.Trace, own.Sample.EBPF = false, false
	here := netip.MustParseAddr("127.0.0.1")
	add := func(f plan.Flow, server, client plan.Action) {
		f.SrcHost, f.DstHost, f.Src, f.Dst, f.Streams = "here", "here", here, here, 1
		f.ServerPort = freePort(t)
		if f.Kind != "http" && f.Kind != "ndt7_download" {
			f.ClientPort = freePort(t)
		}
		server.At, server.Flow, client.At, client.Flow = -5*time.Second, f.Name, f.Start, f.Name
		if f.Kind == "ndt7_download" {
			address := fmt.Sprintf("%v:%d", here, f.ServerPort)
			server.Argv = append([]string{"ndt-server", "-ndt7_addr_cleartext", address}, strings.Fields("-ndt7_addr 127.0.0.1:0 -ndt5_addr 127.0.0.1:0 "+
				"-ndt5_ws_addr 127.0.0.1:0 -ndt5_wss_addr 127.0.0.1:0 -health_addr 127.0.0.1:0 -prometheusx.listen-address 127.0.0.1:0 "+
				"-datadir ndt7 -htmldir . -compress-results=false")...)
			client.Argv = []string{"ndt7-client", "-server", address, "-scheme", "ws", "-format", "json", "-upload=false"}
		}
		p.Flows = append(p.Flows, f)
		own.Actions = append(own.Actions, server, client)
	}
	second := time.Second
	add(plan.Flow{Name: "options", Kind: "iperf3_tcp", Duration: second, CongestionControl: &cubic, RateBps: &rate, Options: plan.Options{MSS: new(1000)}},
		plan.Action{Kind: "iperf3_server"}, plan.Action{Kind: "iperf3_client"}) // whose server makes another listener
	add(plan.Flow{Name: "loads", Kind: "iperf3_udp", Duration: second, RateBps: &rate},
		plan.Action{Kind: "iperf3_server"}, plan.Action{Kind: "iperf3_client"})
	add(plan.Flow{Name: "datagrams", Kind: "udp", Duration: second, RateBps: &rate, PayloadBytes: 1000},
		plan.Action{Kind: "udp_receive"}, plan.Action{Kind: "udp_send"})
	add(plan.Flow{Name: "bytes", Kind: "tcp", Duration: second, CongestionControl: &cubic, Bytes: 1e6, RateBps: &rate},
		plan.Action{Kind: "tcp_receive"}, plan.Action{Kind: "tcp_send"})
	add(plan.Flow{Name: "web", Kind: "http", Duration: 3 * second, CongestionControl: &cubic, Fetching: plan.Fetching{FetchBytes: 100_000, Fetches: 20, Think: second / 20}},
		plan.Action{Kind: "http_server"}, plan.Action{Kind: "http_client"})
	add(plan.Flow{Name: "paced", Kind: "atou", Duration: second, Atou: plan.Atou{Sender: map[string]string{"gap": "2000", "rcvrwin": "40"}, Mode: "precise"}},
		plan.Action{Kind: "atou_serve"}, plan.Action{Kind: "atou_send"})
	built, err := filepath.Abs("../.build/bin")
	if err == nil {
		_, err = os.Stat(filepath.Join(built, "ndt-server"))
	}
	if err == nil {
		t.Setenv("PATH", os.Getenv("PATH")+":"+built)
		add(plan.Flow{Name: "ndt", Kind: "ndt7_download", Start: second / 2, Duration: second / 2}, plan.Action{Kind: "command_server"}, plan.Action{Kind: "command_client"})
	} else {
		t.Log("without NDT, which is not built: make build")
	}
	port := freePort(t)
	own.Actions = append(own.Actions,
		plan.Action{At: -5 * time.Second, Kind: "tcp_listen", Name: "x", Dst: here, DstPort: port, Src: here},
		plan.Action{Kind: "tcp_ping", Name: "x", Dst: here, DstPort: port, Count: 5, Interval: 50 * time.Millisecond})
	p.Hosts["here"] = own
	return p
}

// TestStrangers has strangers at all ports of a run, from before its servers
// listen until its end. No flow notices them, and they are counted.
func TestStrangers(t *testing.T) {
	p := strangersPlan(t)
	dir := t.TempDir()
	writePlan(t, dir, p)
	if err := os.WriteFile(kind.TokenFile(dir), []byte("0123456789abcdef0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	var all sync.WaitGroup
	failures := make(chan error, 100)
	ports := 0
	for _, action := range p.Own().Actions {
		port, waits := kind.Port(p, action)
		if !waits {
			continue
		}
		ports++
		all.Go(func() { failures <- besiege(port.Local, over) })
	}
	a := launchAgent(t, dir)
	a.start()
	before := a.residentBytes()
	a.await("the last flows", func() bool { return a.status().State == "running" })
	time.Sleep(p.Duration - 500*time.Millisecond)
	after := a.residentBytes()
	a.end("done", 0)
	close(over)
	all.Wait()
	close(failures)
	for err := range failures {
		if err != nil {
			t.Error(err)
		}
	}
	if after > before+16<<20 {
		t.Errorf("the agent had %d bytes when it was armed, and has %d", before, after)
	}
	t.Logf("the agent had %d bytes when it was armed, and has %d", before, after)

	var told struct {
		Packets int
		First   string
		Open    []string
	}
	for line := range strings.Lines(a.file("events.jsonl")) {
		if strings.Contains(line, `"strangers"`) {
			if err := json.Unmarshal([]byte(line), &told); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(told.Open) > 0 || told.Packets < ports*connectionsAsked || !strings.Contains(told.First, " from 127.0.0.2:") {
		t.Errorf("told %+v of %d ports", told, ports)
	}
	t.Logf("told %+v of %d ports", told, ports)

	for _, name := range []string{"flow1", "options", "loads"} {
		var report struct {
			End struct {
				SumReceived struct{ Bytes int64 } `json:"sum_received"`
				Sum         struct {
					Bytes int64
					Lost  int64 `json:"lost_packets"`
				}
			}
			Error string
		}
		if err := json.Unmarshal([]byte(a.file("iperf3-"+name+"-server.json")), &report); err != nil {
			t.Fatal(err)
		}
		got := max(report.End.SumReceived.Bytes, report.End.Sum.Bytes)
		want := *p.Flow(name).RateBps / 8
		if report.Error != "" || got < want*8/10 || got > want*12/10 || report.End.Sum.Lost > 0 {
			t.Errorf("%s: %d of %d bytes: %+v", name, got, want, report)
		}
	}
	var received udp.ReceivedResult
	var sent udp.SentResult
	var served http.ServerResult
	var bytes tcp.ReceivedResult
	for name, v := range map[string]any{"udp-datagrams-sender.json": &sent, "udp-datagrams-receiver.json": &received, "http-web-sender.json": &served, "tcp-bytes-receiver.json": &bytes} {
		if err := json.Unmarshal([]byte(a.file(name)), v); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	// A few may have come between the socket's bind and its connect.
	if !received.EndSeen || received.ReceivedPackets != sent.SentPackets || received.LostPackets+received.SocketDrops != 0 || received.ForeignPackets > 100 {
		t.Errorf("sent %+v, received %+v", sent, received)
	}
	if len(bytes.Streams) != 1 || bytes.Streams[0].Bytes != *p.Flow("bytes").RateBps/8 || !bytes.Streams[0].EndSeen || bytes.Foreign != 0 {
		t.Errorf("bytes: %+v", bytes)
	}
	if want := (http.ServerResult{Served: 20, Connections: 20}); served != want {
		t.Errorf("served %+v, want %+v", served, want)
	}
	var acknowledged struct {
		Foreign  uint64 `json:"foreign"`
		Segments uint64 `json:"acked_segments"`
	}
	if err := json.Unmarshal([]byte(a.file("atou-paced-receiver.json")), &acknowledged); err != nil || acknowledged.Segments < 100 || acknowledged.Foreign > 0 {
		t.Errorf("atou: %+v, %v", acknowledged, err)
	}
	if p.Flow("ndt") != nil && !strings.Contains(a.file("command-ndt-client.txt"), `"NumBytes":`) {
		t.Errorf("NDT: %s", a.file("command-ndt-client.txt"))
	}
	var pings kind.TCPPings
	if err := json.Unmarshal([]byte(a.file("tcp-ping-x.json")), &pings); err != nil || len(pings.RTTs) != 5 {
		t.Errorf("tcp_ping: %+v, %v", pings, err)
	}
}

// besiege does at a port what strangers may: it asks for more connections than
// a server has room for, leaves some half open, sends requests without end over
// those that it gets, and datagrams.
func besiege(port netip.AddrPort, over <-chan struct{}) error {
	local, remote := &unix.SockaddrInet4{Addr: strange}, &unix.SockaddrInet4{Addr: port.Addr().As4(), Port: int(port.Port())}
	var held []int
	defer func() {
		for _, fd := range held {
			unix.Close(fd)
		}
	}()
	datagrams, err := net.DialUDP("udp", &net.UDPAddr{IP: strange[:]}, net.UDPAddrFromAddrPort(port))
	if err != nil {
		return err
	}
	defer datagrams.Close()
	endless := []byte("GET / HTTP/1.1\r\n" + strings.Repeat("X: "+strings.Repeat("x", 1000)+"\r\n", 1000))
	for asked := 0; ; asked++ {
		select {
		case <-over:
			if asked < connectionsAsked {
				return fmt.Errorf("%v: only %d connections were asked for", port, asked)
			}
			return nil
		default:
		}
		if asked >= connectionsAsked {
			time.Sleep(time.Millisecond)
		} else if asked%20 == 0 {
			time.Sleep(5 * time.Millisecond)
		}
		datagrams.Write(endless[:100]) // that nobody listens there is none of its business
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if err = unix.Bind(fd, local); err == nil {
			err = unix.Connect(fd, remote)
		}
		if err != nil && !errors.Is(err, unix.EINPROGRESS) && !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.EADDRINUSE) {
			unix.Close(fd)
			return err
		}
		unix.Write(fd, endless) // as much as the kernel takes
		if asked%(connectionsAsked/(connectionsHeld/8)) == 0 {
			held = append(held, fd)
		} else {
			unix.Close(fd)
		}
	}
}

// residentBytes is how much memory the agent has.
func (a *agent) residentBytes() int {
	a.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid))
	if err != nil {
		a.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	kilobytes, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(rest, "kB", 2)[0]))
	if err != nil {
		a.t.Fatal(err)
	}
	return kilobytes << 10
}
