package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/influxdata/line-protocol/v2/lineprotocol"
)

func TestTransfer(t *testing.T) {
	for _, mode := range []string{"precise", "bulk"} {
		t.Run(mode, func(t *testing.T) {
			p := newPlace(t)
			server := p.serve(t, "sack 1\n")
			code, stdout, stderr := runs(t, "send", "--token-file", p.token, "--mode", mode, "--bind", p.host,
				"--trace", p.path("trace"), "--trace-kinds", "--samples", p.path("samples"), "--interval", "1ms", "--tag", "site=here", "--json", p.path("json"),
				p.sender(t, "debug 4\nsack 1\nmaxpkts 5000\ntimeout 0.2\ntick 0\ndroplist 1000,1001,4999\n"))
			if code != 0 {
				t.Fatalf("%d: %s", code, stderr)
			}
			var s summary
			b, err := os.ReadFile(p.path("json"))
			if err == nil {
				err = json.Unmarshal(b, &s)
			}
			if err != nil || s.SndUna != 5000 || s.Rxmts < 3 || s.PktsOut != 5000+s.Rxmts || s.Timeouts != 1 || s.Mode != mode || s.GoodBytes != 5000*1460 {
				t.Errorf("%v in %s", err, b)
			}
			if r := s.ReceiverStats; r == nil || r.Received != 5000 || r.Missing < 2 {
				t.Errorf("the receiver's report is %+v", r)
			}

			// The summary has the same numbers; it has the form of the original's.
			golden, err := os.ReadFile("../../transports/atou/record/testdata/summary.txt")
			if err != nil {
				t.Fatal(err)
			}
			if got, want := shape(stdout), shape(string(golden)); got != want {
				t.Errorf("the summary's form is\n%s, the original's\n%s", got, want)
			}
			for _, want := range []string{
				fmt.Sprintf("rxmts %d dup3s %d packs %d timeouts 1 ", s.Rxmts, s.Dup3s, s.Packs),
				"sack 1 delack 0 maxpkts 5000", fmt.Sprintf("pkts in %d out %d ", s.PktsIn, s.PktsOut), "snd_una 5000",
			} {
				if !strings.Contains(stdout, want) {
					t.Errorf("no %q in\n%s", want, stdout)
				}
			}

			// A line of the trace for each of them.
			kinds := map[string]uint64{}
			for _, line := range lines(t, p.path("trace")) {
				words := strings.Fields(line)
				if n := len(words); n != 3 && !(n == 6 && words[5] == "ack") {
					t.Fatalf("%q", line)
				}
				kinds[words[len(words)-1]]++
			}
			if kinds["xmt"] != 4997 || kinds["drop"] != 3 || kinds["rxt"] != s.Rxmts || kinds["ack"] != s.PktsIn-s.BadAcks {
				t.Errorf("the trace has %v", kinds)
			}
			events := map[string]uint64{}
			for line := range strings.Lines(stderr) {
				events[strings.Fields(line)[0]]++
			}
			if events["3duprxmit"] != s.Dup3s || events["packrxmit"] != s.Packs || events["timerxmit"] != 1 {
				t.Errorf("the events are %v", events)
			}
			checkSamples(t, p.path("samples"), &s)

			line, err := server.stdout.ReadString('\n')
			var r received
			if err == nil {
				err = json.Unmarshal([]byte(line), &r)
			}
			if err != nil || r.End != "fin" || r.ReceiverCounts != *s.ReceiverStats || r.Mode != mode || r.AckedSegments == nil || *r.AckedSegments != 5000 {
				t.Errorf("%v in %s", err, line)
			}
			if rest := server.end(t); rest != "" {
				t.Errorf("more than a line: %s", rest)
			}
			if !strings.Contains(server.stderr.String(), "listening on "+p.host+":") {
				t.Errorf("it says %s", server.stderr)
			}
		})
	}
}

// shape is a summary without what differs from transfer to transfer.
func shape(s string) string {
	s = numbers.ReplaceAllString(strings.TrimSuffix(s, "\n"), "N")
	return heads.ReplaceAllString(s, "...")
}

func lines(t *testing.T, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

// checkSamples reads samples with the decoder of line protocol's own library:
// counters never fall, and end where the summary does.
func checkSamples(t *testing.T, path string, s *summary) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d := lineprotocol.NewDecoderWithBytes(b)
	last, rows := map[string]lineprotocol.Value{}, 0
	for ; d.Next(); rows++ {
		m, err := d.Measurement()
		if err != nil || string(m) != "atou" {
			t.Fatalf("%q, %v", m, err)
		}
		if key, value, err := d.NextTag(); string(key) != "site" || string(value) != "here" || err != nil {
			t.Fatalf("tag %q=%q, %v", key, value, err)
		}
		if key, _, err := d.NextTag(); key != nil || err != nil {
			t.Fatalf("tag %q, %v", key, err)
		}
		_, ended := last["final"]
		for {
			key, value, err := d.NextField()
			if err != nil {
				t.Fatal(err)
			}
			if key == nil {
				break
			}
			switch name := string(key); name {
			case "bytes_sent", "bytes_acked", "total_retrans", "delivered", "busy_time_us", "rtt_samples", "dup_acks_in", "total_rto", "mono_ns":
				if was, ok := last[name]; ok && value.IntV() < was.IntV() {
					t.Errorf("%s falls from %v to %v", name, was, value)
				}
			}
			last[string(key)] = value
		}
		if _, has := last["srtt_us"]; has && rows == 0 {
			t.Error("an RTT before the first segment")
		}
		if _, err := d.Time(lineprotocol.Nanosecond, time.Time{}); err != nil || ended {
			t.Fatalf("a row after the last one, or %v", err)
		}
	}
	for name, want := range map[string]uint64{
		"bytes_acked": s.GoodBytes, "total_retrans": s.Rxmts, "total_rto": s.Timeouts, "delivered": 5000, "unacked": 0,
		"rtt_samples": s.RTTs, "srtt_us": uint64(s.SRTT / 1000), "snd_cwnd": uint64(s.SndCwnd), "dup_acks_in": s.Dups, "data_segs_out": s.PktsOut, "sacked": 0, "lost": 0, "retrans": 0,
	} {
		if got, ok := last[name]; !ok || got.IntV() != int64(want) {
			t.Errorf("the last %s is %v, the summary's %d", name, got, want)
		}
	}
	if final, ok := last["final"]; !ok || !final.BoolV() || rows < 3 {
		t.Errorf("%d rows, the last of them final: %v", rows, ok)
	}
}
