package kind

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"dumbbell/agent/phase"
	"dumbbell/agent/plan"
	"dumbbell/collectors/pace"
	"dumbbell/traffic/guard"

	"golang.org/x/sys/unix"
)

func init() {
	addTask(Task{Kind: "tcp_ping", Check: checkPing, Run: runTCPPing})
	addTask(Task{Kind: "tcp_listen", Serves: true, Check: checkPing, Run: runTCPListen, Port: func(a plan.Action) guard.Port {
		return guard.Port{Local: netip.AddrPortFrom(a.Dst, a.DstPort), Peer: a.Src}
	}})
}

// tcpPingTimeout is how long a connection is awaited.
const tcpPingTimeout = 3 * time.Second

// TCPPings is what a tcp_ping leaves in the run directory.
type TCPPings struct {
	Sent int     `json:"sent"`
	RTTs []int64 `json:"rtts_ns"` // of those that were answered
}

// runTCPPing measures the round-trip time of TCP to a port: what the two
// kernels need for the first half of the handshake, whatever the programs at
// both ends wait for.
func runTCPPing(ctx context.Context, r *phase.Run, a plan.Action, _ func()) error {
	var (
		all      sync.WaitGroup
		rtts     = make([]time.Duration, a.Count)
		failures = make([]error, a.Count)
		found    = TCPPings{RTTs: []int64{}}
	)
	for ; found.Sent < a.Count; found.Sent++ {
		i := found.Sent
		if pace.SleepUntil(ctx, r.T0.Add(a.At+time.Duration(i)*a.Interval)) != nil {
			break
		}
		all.Go(func() { rtts[i], failures[i] = tcpPing(ctx, netip.AddrPortFrom(a.Dst, a.DstPort)) })
	}
	all.Wait()
	for i, rtt := range rtts[:found.Sent] {
		if failures[i] == nil {
			found.RTTs = append(found.RTTs, rtt.Nanoseconds())
		}
	}
	b, err := json.Marshal(found)
	if err == nil {
		err = os.WriteFile(filepath.Join(r.Dir, "tcp-ping-"+a.Name+".json"), append(b, '\n'), 0o644)
	}
	if err == nil && len(found.RTTs) == 0 && ctx.Err() == nil {
		err = fmt.Errorf("no answer: %w", failures[0])
	}
	if err != nil {
		return fmt.Errorf("%s: %w", a, err)
	}
	return nil
}

func tcpPing(ctx context.Context, to netip.AddrPort) (time.Duration, error) {
	dialer := net.Dialer{Timeout: tcpPingTimeout}
	connection, err := dialer.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return 0, err
	}
	defer connection.Close()
	tcp := connection.(*net.TCPConn)
	tcp.SetLinger(0) // it ends at once
	socket, err := tcp.SyscallConn()
	if err != nil {
		return 0, err
	}
	var info *unix.TCPInfo
	controlErr := socket.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	if err = errors.Join(err, controlErr); err != nil {
		return 0, fmt.Errorf("reading TCP_INFO: %w", err)
	}
	return time.Duration(info.Rtt) * time.Microsecond, nil
}

// runTCPListen answers a tcp_ping to a port of this host until the phase ends.
func runTCPListen(ctx context.Context, r *phase.Run, a plan.Action, started func()) error {
	ctx, cancel := r.Until(ctx, r.Plan.Duration)
	defer cancel()
	port, _ := Port(r.Plan, a)
	listen := net.ListenConfig{Control: port.Control}
	listen.SetMultipathTCP(false) // it takes no filter
	listener, err := listen.Listen(ctx, "tcp", port.Local.String())
	if err != nil {
		return fmt.Errorf("%s: %w", a, err)
	}
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	started()
	for {
		connection, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", a, err)
		}
		connection.Close()
	}
}
