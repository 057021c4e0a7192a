package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"dumbbell/agent/kind"
	"dumbbell/agent/plan"
)

// buildAtou builds atou and puts it where the agents of these tests find it.
var buildAtou = sync.OnceValue(func() error {
	dir, err := os.MkdirTemp("", "atou")
	if err != nil {
		return err
	}
	removeAtEnd = append(removeAtEnd, dir)
	if out, err := exec.Command("go", "build", "-o", dir, "../cmd/atou").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return os.Setenv("PATH", dir+":"+os.Getenv("PATH"))
})

// atouPlan has one flow of atou of a second, at 500 segments/s.
func atouPlan(t *testing.T) *plan.Plan {
	t.Helper()
	if err := buildAtou(); err != nil {
		t.Fatal(err)
	}
	p := loopbackPlan(t)
	f := &p.Flows[0]
	f.Kind, f.CongestionControl, f.RateBps = "atou", nil, nil
	f.Atou = plan.Atou{
		Sender:   map[string]string{"gap": "2000", "rcvrwin": "40", "sack": "1", "droplist": "20"},
		Receiver: map[string]string{"sack": "1"}, Mode: "precise", Trace: true,
	}
	own := p.Own()
	own.Sample.Trace, own.Sample.EBPF = false, false
	own.Actions = []plan.Action{
		{At: -5 * time.Second, Kind: "atou_serve", Flow: "flow1"},
		{At: 0, Kind: "atou_send", Flow: "flow1"},
	}
	p.Hosts["here"] = own
	return p
}

// startAtou starts an agent with a plan, and leaves it a token.
func startAtou(t *testing.T, p *plan.Plan) *agent {
	t.Helper()
	dir := t.TempDir()
	writePlan(t, dir, p)
	if err := os.WriteFile(kind.TokenFile(dir), []byte("0123456789abcdef0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	return launchAgent(t, dir)
}

func (a *agent) file(name string) string {
	a.t.Helper()
	b, err := os.ReadFile(filepath.Join(a.dir, name))
	if err != nil {
		a.t.Fatal(err)
	}
	return string(b)
}

func TestRunAtou(t *testing.T) {
	p := atouPlan(t)
	t.Parallel()
	a := startAtou(t, p)
	a.start()
	a.end("done", 0)
	e := a.one("flow_first_data")
	if e.Error == nil && strings.Contains(e.Reason, "permitted") {
		t.Log("not timed: ", e.Reason)
	} else if e.Error == nil || *e.Error < 0 || *e.Error > 200e6 {
		t.Errorf("first data %+v", e)
	}
	var sent struct {
		Rxmts    uint64          `json:"rxmts"`
		Out      uint64          `json:"pkts_out"`
		Good     uint64          `json:"good_bytes"`
		Config   string          `json:"config"`
		Receiver json.RawMessage `json:"receiver"`
	}
	if err := json.Unmarshal([]byte(a.file("atou-flow1-sender.json")), &sent); err != nil {
		t.Fatal(err)
	}
	if sent.Rxmts < 1 || sent.Out > 501 || len(sent.Receiver) == 0 {
		t.Errorf("%d segments in 500 slots, %d again, report %s", sent.Out, sent.Rxmts, sent.Receiver)
	}
	// What the verdict goes by.
	for name, keys := range map[string][]string{
		"atou-flow1-sender.json":   {"elapsed_ns", "config", "receiver_config", "lost_lines", "snd_una", "pkts_in", "path"},
		"atou-flow1-receiver.json": {"socket_drops", "arrived_segments", "unsent_acks", "acks_sent"},
	} {
		var told map[string]any
		if err := json.Unmarshal([]byte(a.file(name)), &told); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, key := range keys {
			if _, there := told[key]; !there {
				t.Errorf("%s has no %s", name, key)
			}
		}
	}
	if config := a.file("atou-flow1-sender.conf"); config != sent.Config || !strings.Contains(config, "maxtime 1\n") {
		t.Errorf("it was asked\n%sand had\n%s", config, sent.Config)
	}
	for name, want := range map[string]string{
		"atou-flow1-summary.txt": " good bytes goodput ", "atou-flow1-events.txt": "3duprxmit ", "atou-flow1-trace.txt": " ack\n",
		"atou-flow1-receiver.json": `"received_segments":`, "atou-flow1-receiver.conf": "sack 1\n",
	} {
		if found := a.file(name); !strings.Contains(found, want) {
			t.Errorf("%s has no %q: %.400s", name, want, found)
		}
	}
	if _, err := os.Stat(kind.TokenFile(a.dir)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the token is still there: %v", err)
	}
	spooled := a.file("spool.lp")
	if strings.Contains(spooled, "\natou") {
		t.Error("rows of atou are in the spool under its own name")
	}
	var rows []string
	for line := range strings.Lines(spooled) {
		if strings.HasPrefix(line, "tcp_info,flow=flow1,host=here,phase=measurement,point=point,run=run,side=sender,stream=0 ") {
			rows = append(rows, line)
		}
	}
	if len(rows) < 2 { // a machine that is slow takes fewer than one each 20 ms
		t.Fatalf("%d rows:\n%s", len(rows), spooled)
	}
	last := rows[len(rows)-1]
	for _, want := range []string{fmt.Sprintf(",bytes_acked=%di,", sent.Good), `,congestion_control="atou",final=true,mono_ns=`, ",srtt_us=", ",snd_cwnd="} {
		if !strings.Contains(last, want) {
			t.Errorf("the last row has no %s: %s", want, last)
		}
	}
}

func TestAtouWithoutServer(t *testing.T) {
	p := atouPlan(t)
	t.Parallel()
	own := p.Own()
	own.Actions = own.Actions[1:]
	p.Hosts["here"] = own
	a := startAtou(t, p)
	a.start()
	a.end("failed", 1, "atou_send flow1: exit status 1", "127.0.0.1")
}

func TestAtouWithoutToken(t *testing.T) {
	p := atouPlan(t)
	t.Parallel()
	dir := t.TempDir()
	writePlan(t, dir, p)
	launchAgent(t, dir).end("failed", 1, "here: atou_serve flow1 needs the token of its run: ", "atou.token: no such file")
}
