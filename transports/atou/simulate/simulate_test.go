package simulate

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"dumbbell/transports/atou/sim"
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
		`{"sendr": {}}`:             `standard input: "sendr" is no key; allowed are sender, receiver, forward,`,
		``:                          "standard input: empty; a request is a JSON object",
		`5`:                         "standard input: found 5; a request is a JSON object",
		`{"forward": {"delay": 1}}`: `forward."delay" is no key; allowed are rate_bps, delay_ns, `,
		`{"forward": {"delay_ns": "1"}, "back": 1}`: "back: found 1; allowed is an object of keys\nforward.delay_ns: found \"1\"; allowed is a whole number",
		`{"back": {"loss": "no", "drop": [-1]}}`:    "back.drop: found [-1]; allowed is a list, each a whole number\nback.loss: found \"no\"; allowed is a number",
		`{"untrimmed": 1}`:                          "untrimmed: found 1; allowed is true or false",
		`{"forward": {"cluster": -4}}`:              "forward.cluster: found -4; allowed is 0 and more",
		`{"interval_ns": -5}`:                       "interval_ns: found -5; allowed is 0 and more",
		`{}`:                                        "forward and back have neither delay_ns nor rate_bps: no time would pass",
		`{"sender": {"maxpkts": 10}}`:               "no time would pass",
		`{"sender": {"gap": 100}}`:                  "", // which lets time pass
		`{"sender": {"maxtime": 0, "maxpkts": 5}, "forward": {"delay_ns": 1}, "back": {"loss": 1}}`:                "the transfer would have no end",
		`{"sender": {"maxtime": 0, "maxpkts": 5}, "forward": {"delay_ns": 1, "police_bps": 1, "police_burst": 1}}`: "0 segments are acknowledged after 24h0m0s: the transfer has no end",
		`{} {}`:                                   "standard input: more than one JSON value",
		`{"sender": {"mss": 31}}`:                 `sender.mss: found "31"; allowed is a whole number from 32 to 65507`,
		`{"sender": {"fack": 1}}`:                 "sender: fack 1 needs sack 1",
		`{"sender": {"mss": "1460\nsack 1"}}`:     `sender.mss: found "1460 sack 1"`,
		`{"receiver": {"mss": 1460}}`:             "receiver.mss is a key of the sender",
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

// A trace that cannot be written is a failure, and none is left, or an input
// lost, by a request that is refused.
func TestTraceFile(t *testing.T) {
	const request = `{"sender": {"maxtime": 0.1}, "forward": {"delay_ns": 1000000}}`
	if _, status, said := ask(t, request, "--trace", "/dev/full"); status != 1 || !strings.Contains(said, "no space left on device") {
		t.Error(status, said)
	}
	path := filepath.Join(t.TempDir(), "request")
	if err := os.WriteFile(path, []byte(request), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, status, said := ask(t, "", "--trace", path, path); status != 1 || !strings.Contains(said, "--trace "+path+" is the file of REQUEST too") {
		t.Error(status, said)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != request {
		t.Errorf("%v, and the request is %q", err, b)
	}
	if _, status, said := ask(t, `{"sender": {"mss": 31}}`, "--trace", path); status != 1 {
		t.Error(status, said)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != request {
		t.Errorf("%v, and what was there is %q", err, b)
	}
}

// TestKeysAreTold: help and README have all keys of a request.
func TestKeysAreTold(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []reflect.Type{reflect.TypeFor[Request](), reflect.TypeFor[sim.Path]()} {
		for i := range of.NumField() {
			key := of.Field(i).Tag.Get("json")
			if !strings.Contains(usage, key) || !bytes.Contains(readme, []byte("`"+key+"`")) {
				t.Errorf("%s is not told", key)
			}
		}
	}
}
