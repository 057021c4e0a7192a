package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"dumbbell/agent/plan"
	"dumbbell/collectors/spool"
	"dumbbell/traffic/http"
)

// httpPlan has fetches from this host to itself.
func httpPlan(t *testing.T) *plan.Plan {
	p := loopbackPlan(t)
	reno := "reno"
	p.Flows = []plan.Flow{{
		Name: "web", Kind: "http", SrcHost: "here", DstHost: "here",
		Src: netip.MustParseAddr("127.0.0.1"), Dst: netip.MustParseAddr("127.0.0.1"), ServerPort: freePort(t), Streams: 1,
		Start: 200 * time.Millisecond, Duration: 800 * time.Millisecond, CongestionControl: &reno,
		Fetching: plan.Fetching{FetchBytes: 76_800, Fetches: 8, Think: 40 * time.Millisecond},
	}}
	own := p.Own()
	own.Sample.TCP = []string{"web"}
	own.Actions = []plan.Action{
		{At: -5 * time.Second, Kind: "http_server", Flow: "web"},
		{At: 200 * time.Millisecond, Kind: "http_client", Flow: "web"},
	}
	p.Hosts["here"] = own
	return p
}

func TestRunHTTP(t *testing.T) {
	for _, persistent := range []bool{false, true} {
		t.Run(fmt.Sprint("persistent ", persistent), func(t *testing.T) {
			t.Parallel()
			p := httpPlan(t)
			p.Flows[0].Persistent = persistent
			a := startAgent(t, p)
			t0 := a.start()
			a.end("done", 0)
			if e := a.one("flow_first_data"); e.Flow != "web" || e.Planned != t0+200e6 || e.Error == nil || *e.Error < 0 || *e.Error > 200e6 {
				t.Errorf("first data %+v", e)
			}
			var client http.ClientResult
			var server http.ServerResult
			for name, v := range map[string]any{"http-web-receiver.json": &client, "http-web-sender.json": &server} {
				b, err := os.ReadFile(filepath.Join(a.dir, name))
				if err != nil || json.Unmarshal(b, v) != nil {
					t.Fatalf("%s: %v: %s", name, err, b)
				}
			}
			connections := 8
			if persistent {
				connections = 1
			}
			if want := (http.ClientResult{Asked: 8, Begun: 8, Done: 8, Connections: connections}); client != want {
				t.Errorf("client %+v, want %+v", client, want)
			}
			if want := (http.ServerResult{Served: 8, Connections: int64(connections)}); server != want {
				t.Errorf("server %+v, want %+v", server, want)
			}
			b, err := os.ReadFile(filepath.Join(a.dir, "spool.lp"))
			if err != nil {
				t.Fatal(err)
			}
			if done, err := spool.Scan(bytes.NewReader(b), 1); err != nil || done.Bytes != int64(len(b)) {
				t.Fatalf("spool: %+v, %v", done, err)
			}
			for _, side := range []string{"receiver", "sender"} {
				tags := ",flow=web,host=here,phase=measurement,point=point,run=run,side=" + side + " "
				var numbers []string
				for line := range strings.Lines(string(b)) {
					fields, fetch := strings.CutPrefix(line, "http_fetch"+tags+"fetch=")
					if !fetch {
						continue
					}
					number, _, _ := strings.Cut(fields, ",")
					numbers = append(numbers, number)
					if !strings.Contains(line, `congestion_control="reno"`) || !strings.Contains(line, "total_retrans=") {
						t.Errorf("row %s", line)
					}
				}
				if got := strings.Join(numbers, " "); got != "1i 2i 3i 4i 5i 6i 7i 8i" {
					t.Errorf("fetches at the %s: %s", side, got)
				}
				// A connection that persists is there while the client thinks: some 280 ms of 20 ms.
				if n := strings.Count(string(b), "\ntcp_info"+tags); persistent && n < 5 {
					t.Errorf("%d samples at the %s", n, side)
				}
			}
		})
	}
}

// TestRunTransfers: those of a plan overlap, and the rows of both ends have their sizes.
func TestRunTransfers(t *testing.T) {
	t.Parallel()
	p := httpPlan(t)
	p.Flows[0].Fetching = plan.Fetching{}
	p.Flows[0].Transfers = []http.Transfer{{At: 0, Bytes: 1000}, {At: 0, Bytes: 70_000}, {At: 300 * time.Millisecond, Bytes: 5}}
	a := startAgent(t, p)
	a.start()
	a.end("done", 0)
	b, err := os.ReadFile(filepath.Join(a.dir, "spool.lp"))
	if err != nil {
		t.Fatal(err)
	}
	for i, bytes := range []int{1000, 70_000, 5} {
		for _, of := range []string{"received", "sent"} {
			row := fmt.Sprintf(` fetch=%di,(.*,)?%s_bytes=%di,`, i+1, of, bytes)
			if n := len(regexp.MustCompile(row).FindAll(b, -1)); n != 1 {
				t.Errorf("%d rows like %s", n, row)
			}
		}
	}
}

// TestRunHTTPWithoutServer: the fetches fail, and so does the phase.
func TestRunHTTPWithoutServer(t *testing.T) {
	t.Parallel()
	p := httpPlan(t)
	own := p.Own()
	own.Actions = own.Actions[1:]
	p.Hosts["here"] = own
	a := startAgent(t, p)
	a.start()
	a.end("failed", 1, "http_client web", "fetches failed, the first: ", "connection refused")
	b, err := os.ReadFile(filepath.Join(a.dir, "spool.lp"))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(b, []byte(`connection refused"`)); n == 0 || n > 8 {
		t.Errorf("%d rows of fetches that failed", n)
	}
}

// TestHTTPPortInUse: that is found before the host says that it is armed.
func TestHTTPPortInUse(t *testing.T) {
	t.Parallel()
	p := httpPlan(t)
	taken, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", p.Flows[0].ServerPort))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	startAgent(t, p).end("failed", 1, "here: http_server web", "address already in use")
}
