package kind

import (
	"context"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"dumbbell/agent/phase"
	"dumbbell/agent/plan"
	"dumbbell/collectors/tcpinfo"
	"dumbbell/traffic/http"
)

// Fetches over HTTP between ends that the agents themselves are.

func init() {
	addKind(Kind{
		Name: "http", Program: "http", Protocol: tcpinfo.TCP, ServerSends: true, KernelPorts: true, Sampling: ByEnds, Check: checkHTTP,
		Foreign: func(f *plan.Flow, require plan.Require) {
			own := f.Fetching != plan.Fetching{} || f.Transfers != nil
			require(!own, "", "fetch_bytes, fetches, think_ns, persistent and transfers belong to an http flow")
		},
	})
	addTask(Task{Kind: "http_server", Role: Server, Prepare: prepareHTTP, Open: newHTTPServer})
	addTask(Task{Kind: "http_client", Role: Client, Prepare: prepareHTTP, Open: newHTTPClient})
}

// httpDrain is how long after the end of its flow a server waits for what the
// client has sent at last.
const httpDrain = time.Second

func checkHTTP(f *plan.Flow, require plan.Require) {
	requireOneStream(f, require, "an http flow")
	requireCongestionControl(f, require)
	require(f.ClientPort == 0, ".client_port", "the kernel chooses those of an http flow, not %d", f.ClientPort)
	if f.Transfers != nil {
		require(f.Fetching == plan.Fetching{}, ".transfers", "fetch_bytes, fetches, think_ns and persistent do not go with them")
		err := http.CheckTransfers(f.Transfers)
		require(err == nil, ".transfers", "%v", err)
		return
	}
	require(f.FetchBytes > 0, ".fetch_bytes", "must be positive, is %d", f.FetchBytes)
	require(f.Fetches >= 0, ".fetches", "must not be negative, is %d", f.Fetches)
	require(f.Think >= 0, ".think_ns", "must not be negative, is %d", f.Think)
}

func prepareHTTP(_ context.Context, r *phase.Run, a plan.Action) error {
	return checkCongestionControl(r.Plan.Flow(a.Flow))
}

func newHTTPServer(p *plan.Plan, f *plan.Flow) (*End, error) {
	e := newEnd(f, "http_fetch", "sender")
	server, err := http.NewServer(http.ServerConfig{
		Config: e.http(p), Client: f.Dst,
		Report: func(s http.Served) { e.reports <- s },
	})
	if err != nil {
		return nil, err
	}
	e.close = server.Close
	e.ends = f.Start + f.Duration + httpDrain
	e.execute = func(ctx context.Context, _ time.Time) (any, error) { return server.Run(ctx) }
	return e, nil
}

func newHTTPClient(p *plan.Plan, f *plan.Flow) (*End, error) {
	e := newEnd(f, "http_fetch", "receiver")
	client, err := http.NewClient(http.ClientConfig{
		Config: e.http(p), From: f.Dst, Count: f.Fetches, Think: f.Think, Persistent: f.Persistent,
		Report:  func(f http.Fetched) { e.reports <- f },
		Started: func(t time.Time) { e.started <- t },
	})
	if err != nil {
		return nil, err
	}
	e.close = client.Close
	e.ends = f.Start + f.Duration
	e.execute = func(ctx context.Context, t0 time.Time) (any, error) { return client.Run(ctx, t0.Add(f.Start)) }
	return e, nil
}

// http is what both ends of the flow know. The path tells its requests from
// those of any other run.
func (e *End) http(p *plan.Plan) http.Config {
	f := e.flow
	if slices.Contains(p.Own().Sample.TCP, f.Name) {
		e.sockets = tcpinfo.NewOwnSockets(p.Tags().With("flow", f.Name, "side", e.side))
	}
	return http.Config{
		Server: netip.AddrPortFrom(f.Src, f.ServerPort), Path: "/" + url.PathEscape(p.RunID) + "/" + url.PathEscape(p.Phase) + "/" + f.Name + "/",
		Bytes: f.FetchBytes, Transfers: f.Transfers, CongestionControl: *f.CongestionControl, Sockets: e.sockets,
	}
}
