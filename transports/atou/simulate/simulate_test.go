package simulate

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ask runs the command and returns its answer, its exit status and what it said.
func ask(t *testing.T, request string, args ...string) (answer Answer, status int, said string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = Main(args, strings.NewReader(request), &out, &errs)
	if out.Len() > 0 {
		if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
			t.Fatal(err)
		}
	}
	return answer, status, errs.String()
}

// 0.5 s of 10 Mbit/s: the samples end with the transfer, and add up to it.
func TestAnswer(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "trace")
	answer, status, said := ask(t, `{
		"sender": {"maxtime": 0.5, "rcvrwin": 40, "droplist": [30, 20], "debug": 3}, "receiver": {"delack": 40},
		"forward": {"rate_bps": 10000000, "delay_ns": 5000000, "queue": 100}, "back": {"delay_ns": 5000000},
		"interval_ns": 100000000, "seed": 7}`, "--trace", trace)
	if status != 0 {
		t.Fatal(said)
	}
	if answer.Elapsed != 5e8 || answer.Sender.Rxmts != 2 || answer.Sender.Dup3s != 1 {
		t.Errorf("%+v", answer)
	}
	if !strings.HasPrefix(said, "3duprxmit 0.0") || !strings.Contains(said, "packrxmit pkt 30 ") {
		t.Errorf("events are %s", said)
	}
	s := answer.Samples
	last := len(s.T) - 1
	if last != 5 || s.T[last] != 5e8 || len(s.Queue) != 6 || s.TotalRetrans[last] != 2 || s.SndCwnd[0] != 2 {
		t.Errorf("%+v", s)
	}
	if got, want := float64(s.BytesAcked[last])*8/0.5, answer.GoodputBps; got != want {
		t.Errorf("samples end with %v bit/s, the transfer has %v", got, want)
	}
	lines, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(lines, []byte(" ack\n")); n != int(answer.Sender.PktsIn) || bytes.Count(lines, []byte(" drop\n")) != 2 {
		t.Errorf("the trace has %d ACKs of %d", n, answer.Sender.PktsIn)
	}
	again, _, _ := ask(t, `{"sender": {"maxtime": 0.5, "rcvrwin": 40, "droplist": "20,30"}, "receiver": {"delack": "40"},
		"forward": {"rate_bps": 10000000, "delay_ns": 5000000, "queue": 100}, "back": {"delay_ns": 5000000}}`)
	if again.GoodputBps != answer.GoodputBps || again.Samples != nil {
		t.Errorf("%v bit/s the second time, %v the first", again.GoodputBps, answer.GoodputBps)
	}
}

func TestRefusals(t *testing.T) {
	for request, want := range map[string]string{
		`{"sendr": {}}`:                           `standard input: json: unknown field "sendr"`,
		`{} {}`:                                   "standard input: more than one JSON value",
		`{"sender": {"mss": 31}}`:                 `sender:1: mss: found "31"; allowed is a whole number from 32 to 65507`,
		`{"sender": {"fack": 1}}`:                 "sender: fack 1 needs sack 1",
		`{"sender": {"mss": "1460\nsack 1"}}`:     `sender:1: mss: found "1460 sack 1"`,
		`{"receiver": {"mss": 1460}}`:             "receiver:1: mss is a key of the sender",
		`{"forward": {"loss": 2}}`:                "forward.loss: found 2; allowed is 0 to 1",
		`{"back": {"police_bps": 1000}}`:          "back.police_burst: found 0; allowed is a positive number",
		`{"back": {"drop": [2, 1]}}`:              "back.drop: found [2 1]; allowed is an ascending list",
		`{"forward": {"loss": 1, "rate_bps": 1}}`: "", // nothing arrives, and the transfer ends at its time
	} {
		_, status, said := ask(t, request)
		if want == "" && status == 0 {
			continue
		}
		if status != 1 || !strings.Contains(said, want) {
			t.Errorf("%s: %d, %s; want %s", request, status, said, want)
		}
	}
	if _, status, said := ask(t, "", "a", "b"); status != 2 || !strings.HasPrefix(said, "usage: ") {
		t.Error(status, said)
	}
	if _, status, said := ask(t, "", "/nowhere/at/all"); status != 1 || !strings.Contains(said, "/nowhere/at/all: no such file") {
		t.Error(status, said)
	}
}
