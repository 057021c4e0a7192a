// Package plan has what a host is told to do in one phase of an experiment, and
// reads it strictly (docs/data-model.md).
package plan

import (
	"net/netip"
	"time"

	"dumbbell/collectors/row"
	"dumbbell/collectors/tcpinfo"
	"dumbbell/traffic/http"
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

// A Flow is traffic from one host to another: data over TCP, UDP datagrams or
// fetches over HTTP of the agents' own, an iperf3 test, a transfer of atou, or what commands
// make, as those of NDT.
// Of http and ndt7_download the sender of the data is the server, of the others
// it is the client.
type Flow struct {
	Name              string            `json:"name"`
	Kind              string            `json:"kind"`      // tcp, iperf3_tcp, iperf3_udp, udp, http, ndt7_download, ndt7_upload, atou or command
	Direction         string            `json:"direction"` // of the path that data takes: for who reads the results
	SrcHost           string            `json:"src_host"`
	DstHost           string            `json:"dst_host"`
	Src               netip.Addr        `json:"src"`
	Dst               netip.Addr        `json:"dst"`
	ServerPort        uint16            `json:"server_port"`
	ClientPort        uint16            `json:"client_port"` // of the first stream, the others follow; 0 for http and ndt7: the kernel chooses
	Streams           int               `json:"streams"`
	Start             time.Duration     `json:"start_ns"` // from t0
	Duration          time.Duration     `json:"duration_ns"`
	Connect           *time.Duration    `json:"connect_ns,omitempty"`    // from t0: it makes no connection before; null: when its client is launched
	CongestionControl *string           `json:"congestion_control"`      // only tcp, iperf3_tcp and http have one, others null
	RateBps           *int64            `json:"rate_bps"`                // payload bits/s over all streams; null: as fast as possible
	DelayUs           int64             `json:"delay_us,omitempty"`      // of its own, which the router adds: for who reads the results
	Bytes             int64             `json:"bytes,omitempty"`         // to send; only tcp has it; 0: as much as there is time for
	PayloadBytes      int               `json:"payload_bytes,omitempty"` // of a datagram; only udp has it
	RateSteps         []udp.Step        `json:"rate_steps,omitempty"`    // later rates, by time from the start; only udp has them
	Own               map[string]string `json:"own,omitempty"`           // what its kind has beside all these
	Transfers         []http.Transfer   `json:"transfers,omitempty"`     // fetches of their own sizes and times, in place of Fetching; only http has them
	Fetching
	Options
	Atou
}

// Fetching is what an http flow does whose fetches follow each other.
type Fetching struct {
	FetchBytes int64         `json:"fetch_bytes,omitempty"`
	Fetches    int           `json:"fetches,omitempty"`    // 0: as many as there is time for
	Think      time.Duration `json:"think_ns,omitempty"`   // pause after each
	Persistent bool          `json:"persistent,omitempty"` // one connection for all
}

// Options are those of the sockets of tcp and iperf3. What is absent is the
// kernel's choice.
type Options struct {
	PacingBps    *int64 `json:"pacing_bps,omitempty"` // SO_MAX_PACING_RATE of each stream
	MSS          *int   `json:"mss_bytes,omitempty"`
	SocketBuffer *int64 `json:"socket_buffer_bytes,omitempty"` // at both ends
	DSCP         *int   `json:"dscp,omitempty"`
}

// Atou is what a flow of atou has beside what all have: what its ends are
// asked, as lines of their configurations.
type Atou struct {
	Sender   map[string]string `json:"sender,omitempty"`
	Receiver map[string]string `json:"receiver,omitempty"`
	Mode     string            `json:"mode,omitempty"`  // precise or bulk
	Trace    bool              `json:"trace,omitempty"` // of each segment and each ACK
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

// Anything reports whether it samples at all.
func (s Sample) Anything() bool {
	return len(s.TCP) > 0 || s.Qdisc || s.Queues || s.Link || s.SNMP || s.CPU || s.Clock || s.Trace || s.EBPF
}

// An Action is something to start.
type Action struct {
	At       time.Duration `json:"at_ns"` // from t0
	Kind     string        `json:"kind"`  // tcp_receive, tcp_send, iperf3_server, iperf3_client, udp_receive, udp_send, http_server, http_client, atou_serve, atou_send, command_server, command_client, ping, tcp_ping, tcp_listen, path or capture
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
func (p *Plan) Tags() row.Tags {
	tags := row.Tags{"run": p.RunID, "point": p.Point, "phase": p.Phase, "host": p.Host}
	if p.Virtual {
		tags["timescale"] = "virtual"
	}
	return tags
}

// Own is the part of the plan that this host executes.
func (p *Plan) Own() HostPlan { return p.Hosts[p.Host] }

// A Start is start.json: the moment that all offsets of the plan refer to.
type Start struct {
	T0UnixNs int64 `json:"t0_unix_ns"`
}
