package kind

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

const examplePlan = `{
  "run_id": "20260101T000000-two_flow_fairness-1", "holder": "20260101T000000-two_flow_fairness-1", "point": "3f9a0c12be47", "host": "sender1",
  "phase": "measurement", "duration_ns": 30000000000, "sampling_interval_ns": 100000000,
  "flows": [
    {"name": "flow1", "kind": "iperf3_tcp", "src_host": "sender1", "dst_host": "receiver1",
     "src": "198.18.1.11", "dst": "198.18.2.11", "server_port": 5201, "client_port": 40001, "streams": 2,
     "start_ns": 0, "duration_ns": 30000000000, "congestion_control": "cubic", "delay_us": 10000, "rate_bps": null},
    {"name": "cross", "kind": "iperf3_udp", "src_host": "sender1", "dst_host": "receiver1",
     "src": "2001:db8::1", "dst": "2001:db8::2", "server_port": 5202, "client_port": 40101, "streams": 2,
     "start_ns": 5000000000, "connect_ns": 4400000000, "duration_ns": 20000000000, "congestion_control": null, "rate_bps": 5000000},
    {"name": "burst", "kind": "udp", "src_host": "sender1", "dst_host": "receiver1",
     "src": "198.18.1.11", "dst": "198.18.2.11", "server_port": 5203, "client_port": 40103, "streams": 1,
     "start_ns": 6000000000, "duration_ns": 2500000000, "congestion_control": null, "rate_bps": 64000000,
     "payload_bytes": 1472, "rate_steps": [{"at_ns": 1000000000, "rate_bps": 0}]},
    {"name": "fetch", "kind": "iperf3_tcp", "direction": "forward", "src_host": "sender1", "dst_host": "receiver1",
     "src": "198.18.1.11", "dst": "198.18.2.11", "server_port": 5204, "client_port": 40104, "streams": 1,
     "start_ns": 0, "duration_ns": 2000000000, "congestion_control": "cubic", "rate_bps": null,
     "pacing_bps": 20000000, "mss_bytes": 1400, "socket_buffer_bytes": 65536, "dscp": 46},
    {"name": "copy", "kind": "command", "src_host": "sender1", "dst_host": "receiver1",
     "src": "198.18.1.11", "dst": "198.18.2.11", "server_port": 5205, "client_port": 40105, "streams": 1,
     "start_ns": 0, "duration_ns": 1500000000, "congestion_control": null, "rate_bps": null},
    {"name": "web", "kind": "http", "src_host": "sender1", "dst_host": "receiver1",
     "src": "198.18.1.11", "dst": "198.18.2.11", "server_port": 5206, "client_port": 0, "streams": 1,
     "start_ns": 0, "duration_ns": 7500000000, "congestion_control": "reno", "rate_bps": null,
     "fetch_bytes": 76800, "fetches": 100, "think_ns": 50000000, "persistent": true},
    {"name": "almost", "kind": "atou", "src_host": "sender1", "dst_host": "receiver1",
     "src": "198.18.1.11", "dst": "198.18.2.11", "server_port": 5208, "client_port": 40108, "streams": 1,
     "start_ns": 2000000000, "duration_ns": 7500000000, "congestion_control": null, "rate_bps": null,
     "sender": {"vegas": "1", "droplist": "5000,9000"}, "receiver": {"delack": "40"}, "mode": "precise", "trace": true},
    {"name": "video", "kind": "tcp", "src_host": "sender1", "dst_host": "receiver1",
     "src": "198.18.1.11", "dst": "198.18.2.11", "server_port": 5209, "client_port": 40109, "streams": 2,
     "start_ns": 1000000000, "duration_ns": 2500000000, "congestion_control": "bbr", "rate_bps": null,
     "bytes": 1000000, "mss_bytes": 1200, "own": {"burst_bytes": "64000", "every_ns": "40000000", "no_delay": "true"}}
  ],
  "hosts": {
    "sender1": {
      "actions": [
        {"at_ns": 0, "kind": "iperf3_client", "flow": "flow1"},
        {"at_ns": 5000000000, "kind": "iperf3_client", "flow": "cross"},
        {"at_ns": 6000000000, "kind": "udp_send", "flow": "burst"},
        {"at_ns": 0, "kind": "ping", "name": "idle", "dst": "198.18.2.11", "count": 20, "interval_ns": 200000000},
        {"at_ns": 0, "kind": "iperf3_client", "flow": "fetch"},
        {"at_ns": 0, "kind": "command_client", "flow": "copy", "argv": ["scp", "a", "b:"]},
        {"at_ns": -5000000000, "kind": "http_server", "flow": "web"},
        {"at_ns": 0, "kind": "tcp_ping", "name": "flow1.plain", "dst": "198.18.2.11", "dst_port": 5207, "count": 50, "interval_ns": 50000000},
        {"at_ns": 2000000000, "kind": "atou_send", "flow": "almost"},
        {"at_ns": 1000000000, "kind": "tcp_send", "flow": "video"}],
      "sample": {"tcp": ["flow1", "web", "almost"], "qdisc": false}},
    "receiver1": {
      "actions": [
        {"at_ns": -5000000000, "kind": "iperf3_server", "flow": "flow1"},
        {"at_ns": 2000000000, "kind": "iperf3_server", "flow": "cross"},
        {"at_ns": -5000000000, "kind": "udp_receive", "flow": "burst"},
        {"at_ns": -5000000000, "kind": "tcp_listen", "name": "flow1.plain", "dst": "198.18.2.11", "dst_port": 5207},
        {"at_ns": -5000000000, "kind": "atou_serve", "flow": "almost"},
        {"at_ns": -5000000000, "kind": "tcp_receive", "flow": "video"}],
      "sample": {"tcp": ["flow1"], "qdisc": false}},
    "router": {"actions": [], "sample": {"tcp": [], "qdisc": true}}
  }
}
`

func TestCommandLines(t *testing.T) {
	p, err := ParsePlan([]byte(examplePlan))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range map[int]string{
		0: "iperf3 -c 198.18.2.11 -p 5201 -B 198.18.1.11 --cport 40001 -P 2 -J -t 30 -C cubic > iperf3-flow1-client.json",
		1: "iperf3 -c 2001:db8::2 -p 5202 -B 2001:db8::1 --cport 40101 -P 2 -J -t 20 -u -b 2500000 > iperf3-cross-client.json",
		3: "ping -D -n -i 0.2 -c 20 198.18.2.11 > ping-idle.txt",
		4: "iperf3 -c 198.18.2.11 -p 5204 -B 198.18.1.11 --cport 40104 -P 1 -J -t 2 -C cubic " +
			"--fq-rate 20000000 -M 1400 -w 65536 --dscp 46 > iperf3-fetch-client.json",
		5: "scp a b: > command-copy-client.txt",
		8: "atou send --token-file ../atou.token --mode precise --bind 198.18.1.11:40108 --events atou-almost-events.txt --samples /proc/self/fd/3 --interval 100ms " +
			"--json atou-almost-sender.json --start 1002000000000 --trace atou-almost-trace.txt atou-almost-sender.conf > atou-almost-summary.txt",
	} {
		command := TaskOf(p.Hosts["sender1"].Actions[i]).Command(p, p.Hosts["sender1"].Actions[i], time.Unix(1000, 0))
		if got := strings.Join(command.Args, " ") + " > " + command.Output; got != want {
			t.Errorf("action %d is %s\nwant %s", i, got, want)
		}
	}
	command := TaskOf(p.Hosts["receiver1"].Actions[0]).Command(p, p.Hosts["receiver1"].Actions[0], time.Time{})
	if got := strings.Join(command.Args, " ") + " > " + command.Output; got != "iperf3 -s -1 -B 198.18.2.11 -p 5201 -J > iperf3-flow1-server.json" {
		t.Errorf("server is %s", got)
	}
	command = TaskOf(p.Hosts["receiver1"].Actions[4]).Command(p, p.Hosts["receiver1"].Actions[4], time.Time{})
	if got := strings.Join(command.Args, " ") + " > " + command.Output; got != "atou serve --token-file ../atou.token --listen 198.18.2.11 atou-almost-receiver.conf > atou-almost-receiver.json" {
		t.Errorf("server is %s", got)
	}
	if got := p.Flow("flow1").Tuple(1).String(); got != "198.18.1.11:40002->198.18.2.11:5201" {
		t.Errorf("tuple of the second stream is %s", got)
	}
}

// TestPlanErrors changes the example in one place; the error has to name it.
func TestPlanErrors(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{`"run_id": "20260101T000000-two_flow_fairness-1"`, `"run_id": ""`, "run_id: missing"},
		{`"phase": "measurement",`, `"phase": "measurement", "colour": 1,`, `unknown field "colour"`},
		{`"streams": 2,`, `"streams": 2, "parallel": 2,`, `unknown field "parallel"`},
		{`"streams": 2,`, `"streams": "2",`, "line 6: flows.streams: a JSON string where a int is wanted"},
		{`"streams": 2,`, `"streams": 0,`, "flows[0].streams: must be at least 1"},
		{`"src": "198.18.1.11"`, `"src": "198.18.1"`, "198.18.1"},
		{`"src": "198.18.1.11"`, `"src": "2001:db8::1"`, "flows[0]: src 2001:db8::1 and dst 198.18.2.11"},
		{`"server_port": 5201`, `"server_port": 0`, "flows[0].server_port: missing"},
		{`"server_port": 5201`, `"server_port": 65536`, "server_port"},
		{`"client_port": 40001`, `"client_port": 65535`, "flows[0].client_port: 2 streams"},
		{`"name": "flow1"`, `"name": "../flow1"`, "flows[0].name"},
		{`"name": "cross"`, `"name": "flow1"`, "occurs twice"},
		{`"kind": "iperf3_tcp"`, `"kind": "netperf"`, "flows[0].kind"},
		{`"congestion_control": "cubic"`, `"congestion_control": null`, "flows[0].congestion_control: missing"},
		{`"rate_bps": 5000000`, `"rate_bps": null`, "flows[1].rate_bps: missing"},
		{`"connect_ns": 4400000000`, `"connect_ns": 5000000000`, "flows[1].connect_ns: must be before"},
		{`"rate_bps": 64000000`, `"rate_bps": null`, "flows[2].rate_bps: missing"},
		{`"rate_bps": 64000000`, `"rate_bps": -1`, "flows[2]: step 0: the rate must be"},
		{`"payload_bytes": 1472`, `"payload_bytes": 20`, "flows[2]: a datagram has 32 to 65507 bytes"},
		{`"rate_steps": [{"at_ns": 1000000000,`, `"rate_steps": [{"at_ns": 0,`, "flows[2]: step 1"},
		{`"rate_bps": null}`, `"rate_bps": null, "payload_bytes": 1000}`, "flows[0]: payload_bytes and rate_steps"},
		{`"kind": "udp_send", "flow": "burst"`, `"kind": "iperf3_client", "flow": "burst"`, "does not make a flow of kind udp"},
		{`"kind": "udp_send", "flow": "burst"`, `"kind": "udp_receive", "flow": "burst"`, "the server of burst is receiver1"},
		{`"kind": "http_server", "flow": "web"`, `"kind": "http_client", "flow": "web"`, "the client of web is receiver1"},
		{`"kind": "http_server", "flow": "web"`, `"kind": "udp_receive", "flow": "web"`, "does not make a flow of kind http"},
		{`"congestion_control": "reno"`, `"congestion_control": ""`, "flows[5].congestion_control: missing"},
		{`"client_port": 0`, `"client_port": 40106`, "flows[5].client_port: the kernel chooses"},
		{`"fetch_bytes": 76800`, `"fetch_bytes": 0`, "flows[5].fetch_bytes: must be positive"},
		{`"fetches": 100`, `"fetches": -1`, "flows[5].fetches: must not be negative"},
		{`"think_ns": 50000000`, `"think_ns": -1`, "flows[5].think_ns: must not be negative"},
		{`"fetch_bytes": 76800`, `"fetch_bytes": 76800, "transfers": [{"at_ns": 0, "bytes": 1}]`, "flows[5].transfers: fetch_bytes, fetches"},
		{`"fetch_bytes": 76800, "fetches": 100, "think_ns": 50000000, "persistent": true`, `"transfers": [{"at_ns": 0, "bytes": 0}]`,
			"flows[5].transfers: transfer 1, of 0 bytes after 0s, is empty"},
		{`"bytes": 1000000`, `"bytes": 1000000, "transfers": [{"at_ns": 0, "bytes": 1}]`, "flows[7]: fetch_bytes, fetches"},
		{`"duration_ns": 7500000000`, `"duration_ns": 0`, "flows[5].duration_ns: must be positive"},
		{`"payload_bytes": 1472`, `"fetch_bytes": 1000, "payload_bytes": 1472`, "flows[2]: fetch_bytes, fetches"},
		{`"start_ns": 0, "duration_ns": 30000000000`, `"start_ns": 0, "duration_ns": 1500000000`, "whole number of seconds"},
		{`"host": "sender1"`, `"host": "sender9"`, `hosts: has no host "sender9"`},
		{`"host": "sender1"`, `"host": "receiver2"`, `hosts: has no host "receiver2"`},
		{`"kind": "iperf3_client", "flow": "flow1"`, `"kind": "iperf3_client", "flow": "flow7"`, `actions[0].flow: there is no flow "flow7"`},
		{`"kind": "iperf3_client", "flow": "flow1"`, `"kind": "iperf3_server", "flow": "flow1"`, "the server of flow1 is receiver1"},
		{`"at_ns": 0, "kind": "iperf3_client"`, `"at_ns": 7, "kind": "iperf3_client"`, "actions[0].at_ns"},
		{`"at_ns": 0, "kind": "ping"`, `"at_ns": 0, "kind": "traceroute"`, "actions[3].kind"},
		{`"kind": "command_client", "flow": "copy"`, `"kind": "iperf3_client", "flow": "copy"`, "does not make a flow of kind command"},
		{`"argv": ["scp", "a", "b:"]`, `"argv": []`, "actions[5].argv"},
		{`"kind": "iperf3_client", "flow": "flow1"`, `"kind": "iperf3_client", "flow": "flow1", "argv": ["x"]`, "actions[0].argv"},
		{`"payload_bytes": 1472`, `"mss_bytes": 1000, "payload_bytes": 1472`, "flows[2]: pacing_bps, mss_bytes"},
		{`"count": 20`, `"count": 0`, "actions[3].count"},
		{`"dst_port": 5207, `, ``, "actions[7].dst_port"},
		{`"count": 20`, `"dst_port": 7, "count": 20`, "actions[3].dst_port"},
		{`"count": 50`, `"count": 0`, "actions[7].count"},
		{`"sample": {"tcp": ["flow1", "web", "almost"], "qdisc": false}},`, `"sample": {"tcp": ["cross"], "qdisc": false}},`, "sample.tcp[0]: cross is UDP"},
		{`"vegas": "1"`, `"vegas": "2"`, `flows[6].sender: almost.sender:6: vegas: found "2"; allowed is 0 or 1`},
		{`"vegas": "1"`, `"sack": "1"`, "flows[6].receiver: sack 1 of the sender needs sack 1 of the receiver, which has sack 0"},
		{`"vegas": "1"`, `"fack": "1"`, "flows[6].sender: almost.sender: fack 1 needs sack 1"},
		{`"vegas": "1"`, `"vegas": "1\nsack 1"`, `flows[6].sender: "vegas": "1\nsack 1" is no word and its value`},
		{`"vegas": "1"`, `"port": "1"`, "flows[6].sender: almost.sender:6: port stands in line 4 already"},
		{`"delack": "40"`, `"vegas": "1"`, "flows[6].receiver: almost.receiver:2: vegas is a key of the sender"},
		{`"mode": "precise"`, `"mode": "fast"`, `flows[6].mode: "fast" is neither precise nor bulk`},
		{`"payload_bytes": 1472`, `"mode": "bulk", "payload_bytes": 1472`, "flows[2]: sender, receiver, mode and trace belong to a flow of atou"},
		{`"congestion_control": "bbr"`, `"congestion_control": null`, "flows[7].congestion_control: missing"},
		{`"bytes": 1000000`, `"bytes": 31`, "flows[7]: the data of a stream has 16 bytes at least"},
		{`"bytes": 1000000`, `"bytes": 1000000, "fetches": 1`, "flows[7]: fetch_bytes, fetches"},
		{`"burst_bytes": "64000"`, `"burst_bytes": "64kB"`, "flows[7].own: strconv.ParseInt"},
		{`"burst_bytes": "64000"`, `"burst_bytes": "0"`, "flows[7].own: burst_bytes must be positive, is 0"},
		{`"burst_bytes": "64000", `, ``, "flows[7]: bursts and their interval belong together"},
		{`"no_delay": "true"`, `"no_delay": "yes"`, "flows[7].own: strconv.ParseBool"},
		{`"no_delay": "true"`, `"cork": "true"`, `flows[7].own: "cork" is none of burst_bytes, every_ns, no_delay`},
		{`"bbr", "rate_bps": null`, `"bbr", "rate_bps": 1000000`, "flows[7]: a flow has a rate or bursts, not both"},
		{`"kind": "tcp_send", "flow": "video"`, `"kind": "tcp_send", "flow": "flow1"`, "tcp_send does not make a flow of kind iperf3_tcp"},
		{`"payload_bytes": 1472`, `"bytes": 1000, "payload_bytes": 1472`, "flows[2].bytes: belongs to a tcp flow"},
		{`"duration_ns": 30000000000, "sampling_interval_ns"`, `"duration_ns": 0, "sampling_interval_ns"`, "duration_ns: must be positive"},
		{`"streams": 2,`, `"streams": 2;`, "line 6: invalid character ';'"},
		{"}\n}\n", "}\n} {}\n", "more than one JSON value"},
		{"}\n}\n", "}\n", "unexpected EOF"},
	} {
		changed := strings.Replace(examplePlan, c.old, c.new, 1)
		if changed == examplePlan {
			t.Fatalf("the example has no %s", c.old)
		}
		if _, err := ParsePlan([]byte(changed)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v, want %q", c.new, err, c.want)
		}
	}
}

func FuzzParsePlan(f *testing.F) {
	f.Add([]byte(examplePlan))
	f.Add([]byte(`{"flows": null, "hosts": {"": {}}}`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ParsePlan(b)
		if err != nil {
			return
		}
		for _, a := range p.Own().Actions { // whatever is accepted can be executed
			switch task := TaskOf(a); {
			case task.Open != nil:
				if f := p.Flow(a.Flow); f.Kind == "udp" && schedule(f).Check() != nil {
					t.Error(schedule(f).Check())
				}
			case task.Command != nil:
				if command := TaskOf(a).Command(p, a, time.Time{}); len(command.Args) == 0 || command.Args[0] == "" || strings.Contains(command.Output, "/") {
					t.Errorf("%q > %s", command.Args, command.Output)
				}
			}
		}
		again, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParsePlan(again); err != nil {
			t.Errorf("a plan is refused when written again: %v", err)
		}
	})
}

func TestPathErrors(t *testing.T) {
	for _, c := range []struct{ commands, want string }{
		{`[]`, "commands: missing"},
		{`[["qdisc", ""]]`, "a word is empty"},
		{`[["qdisc", "show\nqdisc del"]]`, "a word is empty, or has blanks"},
		{`[[]]`, "a word is empty"},
	} {
		p := strings.Replace(examplePlan, `{"at_ns": 0, "kind": "ping"`,
			`{"at_ns": 7, "kind": "path", "name": "outage", "commands": `+c.commands+`}, {"at_ns": 0, "kind": "ping"`, 1)
		if _, err := ParsePlan([]byte(p)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.commands, err, c.want)
		}
	}
}
