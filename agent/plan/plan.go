package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"dumbbell/collectors/sample"
	"dumbbell/collectors/tcpinfo"
	"dumbbell/traffic/udp"
)

// A Plan is one phase of an experiment as an agent gets it (docs/data-model.md).
type Plan struct {
	RunID            string              `json:"run_id"`
	Holder           string              `json:"holder"` // id of the whole run, of which this may be one point: it has the host
	Point            string              `json:"point"`
	Host             string              `json:"host"` // the host this agent runs on
	Phase            string              `json:"phase"`
	Virtual          bool                `json:"virtual"` // whether the hosts live in virtual time
	Duration         time.Duration       `json:"duration_ns"`
	SamplingInterval time.Duration       `json:"sampling_interval_ns"`
	Flows            []Flow              `json:"flows"`
	Hosts            map[string]HostPlan `json:"hosts"`
}

// A Flow is traffic from one host to another: an iperf3 test, UDP datagrams or
// fetches over HTTP of the agents' own, a transfer of atou, or what commands
// make, as those of NDT.
// Of http and ndt7_download the sender of the data is the server, of the others
// it is the client.
type Flow struct {
	Name              string         `json:"name"`
	Kind              string         `json:"kind"`      // iperf3_tcp, iperf3_udp, udp, http, ndt7_download, ndt7_upload, atou or command
	Direction         string         `json:"direction"` // of the path that data takes: for who reads the results
	SrcHost           string         `json:"src_host"`
	DstHost           string         `json:"dst_host"`
	Src               netip.Addr     `json:"src"`
	Dst               netip.Addr     `json:"dst"`
	ServerPort        uint16         `json:"server_port"`
	ClientPort        uint16         `json:"client_port"` // of the first stream, the others follow; 0 for http and ndt7: the kernel chooses
	Streams           int            `json:"streams"`
	Start             time.Duration  `json:"start_ns"` // from t0
	Duration          time.Duration  `json:"duration_ns"`
	Connect           *time.Duration `json:"connect_ns,omitempty"`    // from t0: it makes no connection before; null: when its client is launched
	CongestionControl *string        `json:"congestion_control"`      // only iperf3_tcp and http have one, others null
	RateBps           *int64         `json:"rate_bps"`                // payload bits/s over all streams; null: as fast as possible
	DelayUs           int64          `json:"delay_us,omitempty"`      // of its own, which the router adds: for who reads the results
	PayloadBytes      int            `json:"payload_bytes,omitempty"` // of a datagram; only udp has it
	RateSteps         []udp.Step     `json:"rate_steps,omitempty"`    // later rates, by time from the start; only udp has them
	Fetching
	Options
	Atou
}

// Fetching is what an http flow does.
type Fetching struct {
	FetchBytes int64         `json:"fetch_bytes,omitempty"`
	Fetches    int           `json:"fetches,omitempty"`    // 0: as many as there is time for
	Think      time.Duration `json:"think_ns,omitempty"`   // pause after each
	Persistent bool          `json:"persistent,omitempty"` // one connection for all
}

// Options are what an iperf3 test may be asked for. What is absent is iperf3's
// own choice.
type Options struct {
	PacingBps    *int64 `json:"pacing_bps,omitempty"` // SO_MAX_PACING_RATE of each stream
	MSS          *int   `json:"mss_bytes,omitempty"`
	SocketBuffer *int64 `json:"socket_buffer_bytes,omitempty"` // at both ends
	DSCP         *int   `json:"dscp,omitempty"`
}

// arguments are iperf3's, of the client, which tells the server what it needs.
func (o Options) arguments() (args []string) {
	if o.PacingBps != nil {
		args = append(args, "--fq-rate", strconv.FormatInt(*o.PacingBps, 10))
	}
	if o.MSS != nil {
		args = append(args, "-M", strconv.Itoa(*o.MSS))
	}
	if o.SocketBuffer != nil {
		args = append(args, "-w", strconv.FormatInt(*o.SocketBuffer, 10))
	}
	if o.DSCP != nil {
		args = append(args, "--dscp", strconv.Itoa(*o.DSCP))
	}
	return args
}

// A HostPlan is what one host has to do.
type HostPlan struct {
	Actions   []Action      `json:"actions"`
	Restore   [][]string    `json:"restore,omitempty"`    // commands of tc that undo the changes of the path, however the phase ends
	RestoreAt time.Duration `json:"restore_ns,omitempty"` // from t0, when the last packets of the flows have passed
	Sample    Sample        `json:"sample"`
}

// A Sample is what one host samples.
type Sample struct {
	TCP    []string `json:"tcp"`              // names of flows
	Qdisc  bool     `json:"qdisc"`            // at each tick
	Queues bool     `json:"queues,omitempty"` // the same each second
	Link   bool     `json:"link"`
	SNMP   bool     `json:"snmp"`
	CPU    bool     `json:"cpu"`
	Clock  bool     `json:"clock"`
	Trace  bool     `json:"trace"` // of the flows of tcp
	EBPF   bool     `json:"ebpf"`  // of the flows of tcp
}

// anything reports whether it samples at all.
func (s Sample) anything() bool {
	return len(s.TCP) > 0 || s.Qdisc || s.Queues || s.Link || s.SNMP || s.CPU || s.Clock || s.Trace || s.EBPF
}

// An Action is something to start.
type Action struct {
	At       time.Duration `json:"at_ns"` // from t0
	Kind     string        `json:"kind"`  // iperf3_server, iperf3_client, udp_receive, udp_send, http_server, http_client, atou_serve, atou_send, command_server, command_client, ping, tcp_ping, tcp_listen, path or capture
	Flow     string        `json:"flow,omitempty"`
	Argv     []string      `json:"argv,omitempty"`     // only commands have it
	Name     string        `json:"name,omitempty"`     // of what belongs to no flow: of a capture, its interface
	Commands [][]string    `json:"commands,omitempty"` // of tc, word by word; only path has them
	Dst      netip.Addr    `json:"dst,omitzero"`
	DstPort  uint16        `json:"dst_port,omitempty"` // only tcp_ping and tcp_listen have it
	Src      netip.Addr    `json:"src,omitzero"`       // only tcp_listen has it: who may connect; absent: anybody
	Count    int           `json:"count,omitempty"`
	Interval time.Duration `json:"interval_ns,omitempty"`
}

// String tells an action from the others of its host.
func (a Action) String() string { return a.Kind + " " + a.Flow + a.Name }

// program is what makes the flow: iperf3, atou, udp or http (the agent itself) or command.
func (f *Flow) program() string {
	if f.NDT() {
		return "command"
	}
	program, _, _ := strings.Cut(f.Kind, "_")
	return program
}

// NDT reports whether the flow is a test of M-Lab's Network Diagnostic Tool.
func (f *Flow) NDT() bool { return f.Kind == "ndt7_download" || f.Kind == "ndt7_upload" }

// UDP reports whether the flow is UDP and not TCP.
func (f *Flow) UDP() bool { return f.Kind == "iperf3_udp" || f.Kind == "udp" || f.Kind == "atou" }

// serverSends reports whether it is the server, which waits to be asked, that sends the data.
func (f *Flow) serverSends() bool { return f.Kind == "http" || f.Kind == "ndt7_download" }

// Ends are the hosts of the flow's server and client.
func (f *Flow) Ends() (server, client string) {
	if f.serverSends() {
		return f.SrcHost, f.DstHost
	}
	return f.DstHost, f.SrcHost
}

// Protocol is the flow's transport protocol.
func (f *Flow) Protocol() tcpinfo.Protocol {
	if f.UDP() {
		return tcpinfo.UDP
	}
	return tcpinfo.TCP
}

// Tuple is the data connection of one stream, counted from 0, as the sender
// sees it.
func (f *Flow) Tuple(stream int) tcpinfo.Tuple {
	return tcpinfo.Tuple{
		Local:  netip.AddrPortFrom(f.Src, f.ClientPort+uint16(stream)),
		Remote: netip.AddrPortFrom(f.Dst, f.ServerPort),
	}
}

// Flow returns the flow of that name, or nil.
func (p *Plan) Flow(name string) *Flow {
	for i := range p.Flows {
		if p.Flows[i].Name == name {
			return &p.Flows[i]
		}
	}
	return nil
}

// Tags are those of every row of this host's run.
func (p *Plan) Tags() sample.Tags {
	tags := sample.Tags{"run": p.RunID, "point": p.Point, "phase": p.Phase, "host": p.Host}
	if p.Virtual {
		tags["timescale"] = "virtual"
	}
	return tags
}

// Own is the part of the plan that this host executes.
func (p *Plan) Own() HostPlan { return p.Hosts[p.Host] }

// ReadPlan reads and checks a plan.
func ReadPlan(path string) (*Plan, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the plan: %w", err)
	}
	plan, err := ParsePlan(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return plan, nil
}

// ParsePlan decodes and checks a plan.
func ParsePlan(b []byte) (*Plan, error) {
	plan := new(Plan)
	if err := decodeStrict(b, plan); err != nil {
		return nil, err
	}
	return plan, plan.check()
}

// decodeStrict decodes exactly one JSON value without unknown keys. Errors
// name the key, and the line where the decoder knows it.
func decodeStrict(b []byte, v any) error {
	line := func(offset int64) int { return 1 + bytes.Count(b[:offset], []byte("\n")) }
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("line %d: %w", line(e.Offset), err)
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("line %d: %s: a JSON %s where a %v is wanted", line(e.Offset), e.Field, e.Value, e.Type)
	}
	if err != nil {
		return err
	}
	if _, err = d.Token(); err != io.EOF {
		return errors.New("more than one JSON value")
	}
	return nil
}

// fileName is what may become part of a file name and of a tag.
var fileName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

// check returns all that is wrong with a plan, each with its key.
func (p *Plan) check() error {
	var problems []error
	require := func(ok bool, key, format string, a ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, a...)))
		}
	}
	for key, value := range map[string]string{"run_id": p.RunID, "holder": p.Holder, "point": p.Point, "host": p.Host, "phase": p.Phase} {
		require(value != "", key, "missing")
	}
	require(p.Duration > 0, "duration_ns", "must be positive, is %d", p.Duration)
	require(p.SamplingInterval > 0, "sampling_interval_ns", "must be positive, is %d", p.SamplingInterval)
	_, known := p.Hosts[p.Host]
	require(known, "hosts", "has no host %q", p.Host)

	for i := range p.Flows {
		f, key := &p.Flows[i], fmt.Sprintf("flows[%d]", i)
		require(fileName.MatchString(f.Name), key+".name", "%q is not a name of letters, digits, _ . and -", f.Name)
		require(p.Flow(f.Name) == f, key+".name", "%q occurs twice", f.Name)
		require(f.SrcHost != "", key+".src_host", "missing")
		require(f.DstHost != "", key+".dst_host", "missing")
		require(f.Src.IsValid(), key+".src", "missing")
		require(f.Dst.IsValid(), key+".dst", "missing")
		require(f.Src.Is4() == f.Dst.Is4(), key, "src %v and dst %v are of different families", f.Src, f.Dst)
		require(f.ServerPort > 0, key+".server_port", "missing")
		require(f.ClientPort > 0 || f.Kind == "http" || f.NDT(), key+".client_port", "missing")
		require(f.Streams >= 1, key+".streams", "must be at least 1, is %d", f.Streams)
		require(int(f.ClientPort)+f.Streams-1 <= 65535, key+".client_port", "%d streams from port %d end beyond 65535", f.Streams, f.ClientPort)
		require(f.Start >= 0, key+".start_ns", "must not be before t0, is %d", f.Start)
		require(f.Connect == nil || *f.Connect < f.Start, key+".connect_ns", "must be before the flow's start")
		switch f.Kind {
		case "udp":
			require(f.Streams == 1, key+".streams", "a udp flow has one, not %d", f.Streams)
			if f.RateBps != nil {
				if err := f.schedule().Check(); err != nil {
					problems = append(problems, fmt.Errorf("%s: %w", key, err))
				}
			}
		case "command", "ndt7_download", "ndt7_upload":
			require(f.Streams == 1, key+".streams", "a command has one, not %d", f.Streams)
			require(f.Duration > 0, key+".duration_ns", "must be positive, is %d", f.Duration)
			require(f.RateBps == nil, key+".rate_bps", "a command has none")
			require(f.CongestionControl == nil, key+".congestion_control", "a command has none")
		case "atou":
			require(f.Streams == 1, key+".streams", "a flow of atou has one, not %d", f.Streams)
			require(f.Duration > 0, key+".duration_ns", "must be positive, is %d", f.Duration)
			require(f.RateBps == nil, key+".rate_bps", "a flow of atou has none")
			require(f.Mode == "precise" || f.Mode == "bulk", key+".mode", "%q is neither precise nor bulk", f.Mode)
			sender, err := f.atouSender()
			require(err == nil, key+".sender", "%v", err)
			receiver, err := f.atouReceiver()
			require(err == nil, key+".receiver", "%v", err)
			require(err != nil || !sender.SACK || receiver.SACK, key+".receiver", "sack 1 of the sender needs sack 1 of the receiver, which has sack 0")
		case "http":
			require(f.Streams == 1, key+".streams", "an http flow has one, not %d", f.Streams)
			require(f.ClientPort == 0, key+".client_port", "the kernel chooses those of an http flow, not %d", f.ClientPort)
			require(f.Duration > 0, key+".duration_ns", "must be positive, is %d", f.Duration)
			require(f.RateBps == nil, key+".rate_bps", "an http flow has none")
			require(f.CongestionControl != nil && *f.CongestionControl != "", key+".congestion_control", "missing")
			require(f.FetchBytes > 0, key+".fetch_bytes", "must be positive, is %d", f.FetchBytes)
			require(f.Fetches >= 0, key+".fetches", "must not be negative, is %d", f.Fetches)
			require(f.Think >= 0, key+".think_ns", "must not be negative, is %d", f.Think)
		case "iperf3_tcp":
			require(f.CongestionControl != nil && *f.CongestionControl != "", key+".congestion_control", "missing")
			fallthrough
		case "iperf3_udp":
			require(f.Duration > 0 && f.Duration%time.Second == 0, key+".duration_ns",
				"iperf3 runs for a whole number of seconds, not %v", f.Duration)
			require(f.RateBps == nil || *f.RateBps > 0, key+".rate_bps", "must be positive or null")
		default:
			require(false, key+".kind", "%q is none of iperf3_tcp, iperf3_udp, udp, http, ndt7_download, ndt7_upload, atou, command", f.Kind)
		}
		if f.UDP() {
			require(f.RateBps != nil || f.Kind == "atou", key+".rate_bps", "missing, a UDP flow needs one")
			require(f.CongestionControl == nil, key+".congestion_control", "a UDP flow has none")
		}
		require(f.Kind == "udp" || f.PayloadBytes == 0 && f.RateSteps == nil, key, "payload_bytes and rate_steps belong to a udp flow")
		require(f.Kind == "http" || f.Fetching == Fetching{}, key, "fetch_bytes, fetches, think_ns and persistent belong to an http flow")
		require(strings.HasPrefix(f.Kind, "iperf3_") || f.Options == Options{}, key,
			"pacing_bps, mss_bytes, socket_buffer_bytes and dscp belong to iperf3")
		require(f.Kind == "atou" || f.Atou.empty(), key, "sender, receiver, mode and trace belong to a flow of atou")
	}

	var seen []string
	for i, a := range p.Own().Actions {
		key := fmt.Sprintf("hosts[%q].actions[%d]", p.Host, i)
		require(!slices.Contains(seen, a.String()), key, "%s occurs twice", a)
		seen = append(seen, a.String())
		switch a.Kind {
		case "iperf3_server", "iperf3_client", "udp_receive", "udp_send", "http_server", "http_client", "atou_serve", "atou_send", "command_server", "command_client":
			f := p.Flow(a.Flow)
			program, end, _ := strings.Cut(a.Kind, "_")
			require(f != nil, key+".flow", "there is no flow %q", a.Flow)
			require(a.Name == "" && !a.Dst.IsValid() && a.Count == 0 && a.Interval == 0, key, "name, dst, count and interval_ns belong to a ping")
			if f == nil {
				break
			}
			require(f.program() == program, key+".kind", "%s does not make a flow of kind %s", a.Kind, f.Kind)
			require((program == "command") == (len(a.Argv) > 0 && a.Argv[0] != ""), key+".argv", "a command has one, and nothing else")
			server, client := f.Ends()
			if end == "client" || end == "send" {
				require(client == p.Host, key+".flow", "the client of %s is %s", f.Name, client)
				require(f.Start == a.At, key+".at_ns", "is %d, but %s starts at %d", a.At, f.Name, f.Start)
			} else {
				require(server == p.Host, key+".flow", "the server of %s is %s", f.Name, server)
			}
		case "path":
			require(a.Flow == "" && len(a.Argv) == 0 && !a.Dst.IsValid(), key, "a change of the path has a name and commands alone")
			require(fileName.MatchString(a.Name) && a.Name != "restore", key+".name", "%q is not a name of letters, digits, _ . and -, or is restore", a.Name)
			require(len(a.Commands) > 0, key+".commands", "missing")
			require(batchable(a.Commands), key+".commands", "a word is empty, or has blanks, quotes or #")
		case "capture":
			require(a.Flow == "" && len(a.Argv) == 0 && !a.Dst.IsValid(), key, "a capture has the name of an interface alone")
			require(fileName.MatchString(a.Name), key+".name", "%q is no name of an interface: letters, digits, _ . and -", a.Name)
		case "ping", "tcp_ping", "tcp_listen":
			require((a.Kind != "ping") == (a.DstPort > 0), key+".dst_port", "a tcp_ping and a tcp_listen have one, and nothing else")
			require(a.Flow == "" && len(a.Argv) == 0, key, "a %s has neither flow nor argv", a.Kind)
			require(fileName.MatchString(a.Name), key+".name", "%q is not a name of letters, digits, _ . and -", a.Name)
			require(a.Dst.IsValid(), key+".dst", "missing")
			require(a.Kind == "tcp_listen" || !a.Src.IsValid(), key+".src", "only a tcp_listen has one")
			require(a.Kind == "tcp_listen" || a.Count > 0, key+".count", "must be positive, is %d", a.Count)
			require(a.Kind == "tcp_listen" || a.Interval > 0, key+".interval_ns", "must be positive, is %d", a.Interval)
		default:
			require(false, key+".kind", "%q is none of iperf3_server, iperf3_client, udp_receive, udp_send, http_server, http_client, atou_serve, atou_send, command_server, command_client, ping, tcp_ping, tcp_listen, path, capture", a.Kind)
		}
	}
	require(batchable(p.Own().Restore), fmt.Sprintf("hosts[%q].restore", p.Host), "a word is empty, or has blanks, quotes or #")
	for i, name := range p.Own().Sample.TCP {
		key := fmt.Sprintf("hosts[%q].sample.tcp[%d]", p.Host, i)
		f := p.Flow(name)
		require(f != nil, key, "there is no flow %q", name)
		require(f == nil || !f.UDP() || f.Kind == "atou", key, "%s is UDP", name)
		require(f == nil || f.SrcHost == p.Host || f.DstHost == p.Host, key, "%s neither starts nor ends here", name)
		require(f == nil || f.SrcHost == p.Host || f.Kind != "atou", key, "%s is of atou, and is sampled where it starts", name)
	}
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(problems...)
}

// A Start is start.json: the moment that all offsets of the plan refer to.
type Start struct {
	T0UnixNs int64 `json:"t0_unix_ns"`
}
