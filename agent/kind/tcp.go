package kind

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"dumbbell/agent/phase"
	"dumbbell/agent/plan"
	"dumbbell/collectors/tcpinfo"
	"dumbbell/traffic/tcp"
)

// Data over TCP between ends that the agents themselves are.

func init() {
	addKind(Kind{
		Name: "tcp", Program: "tcp", Protocol: tcpinfo.TCP, Options: true, Check: checkTCP,
		Foreign: func(f *plan.Flow, require plan.Require) {
			require(f.Bytes == 0, ".bytes", "belongs to a tcp flow")
		},
	})
	addTask(Task{Kind: "tcp_receive", Role: Server, Prepare: prepareTCP, Open: newTCPReceiver})
	addTask(Task{Kind: "tcp_send", Role: Client, Lead: clientLead, Ahead: LaunchLead, Prepare: prepareTCP, Open: newTCPSender})
}

const (
	// tcpDrain is how long after the end of its flow a receiver waits for what the
	// kernel still has to send, and for the end.
	tcpDrain = 5 * time.Second

	// afterDrain is how much longer the sender waits: the receiver ends first.
	afterDrain = time.Second
)

func checkTCP(f *plan.Flow, require plan.Require) {
	requireCongestionControl(f, require)
	require(f.RateBps == nil || *f.RateBps > 0, ".rate_bps", "must be positive or null")
	own, err := tcpOwn(f)
	require(err == nil, ".own", "%v", err)
	if err == nil && f.Streams > 0 {
		err := own.schedule.Check(f.Streams)
		require(err == nil, "", "%v", err)
	}
}

// tcpKeys are what a flow has in `own`, and what its schedule has beside them.
type tcpKeys struct {
	schedule      tcp.Schedule
	noDelay       bool
	sendBuffer    int64 // of the sender, 0 if it is not asked apart
	receiveBuffer int64 // of the receiver
}

// tcpOwn reads the keys strictly.
func tcpOwn(f *plan.Flow) (keys tcpKeys, err error) {
	keys.schedule = tcp.Schedule{Duration: f.Duration, Bytes: f.Bytes}
	if f.RateBps != nil {
		keys.schedule.RateBps = *f.RateBps
	}
	for key, text := range f.Own {
		var n int64
		switch key {
		case "no_delay":
			keys.noDelay, err = strconv.ParseBool(text)
		case "burst_bytes", "every_ns", "send_buffer_bytes", "receive_buffer_bytes":
			if n, err = strconv.ParseInt(text, 10, 64); err == nil && n <= 0 {
				err = fmt.Errorf("%s must be positive, is %d", key, n)
			}
		default:
			err = fmt.Errorf("%q is none of burst_bytes, every_ns, no_delay, receive_buffer_bytes, send_buffer_bytes", key)
		}
		switch key {
		case "burst_bytes":
			keys.schedule.Burst = n
		case "every_ns":
			keys.schedule.Every = time.Duration(n)
		case "send_buffer_bytes":
			keys.sendBuffer = n
		case "receive_buffer_bytes":
			keys.receiveBuffer = n
		}
		if err != nil {
			return keys, err
		}
	}
	return keys, nil
}

func prepareTCP(_ context.Context, r *phase.Run, a plan.Action) error {
	if err := checkCongestionControl(r.Plan.Flow(a.Flow)); err != nil {
		return err
	}
	return checkDiag()
}

func newTCPSender(p *plan.Plan, f *plan.Flow) (*End, error) {
	e := newEnd(f, "tcp", "sender")
	own, err := tcpOwn(f)
	if err != nil {
		return nil, err
	}
	config := tcpConfig(p, f, own)
	if own.sendBuffer > 0 {
		config.SendBuffer = own.sendBuffer
	}
	sender, err := tcp.NewSender(tcp.SenderConfig{Config: config, Schedule: own.schedule, Drain: tcpDrain + afterDrain})
	if err != nil {
		return nil, err
	}
	e.tapped, e.close = true, sender.Close
	e.execute = func(ctx context.Context, t0 time.Time) (any, error) {
		return sender.Run(ctx, connectAt(t0, f), t0.Add(f.Start))
	}
	return e, nil
}

func newTCPReceiver(p *plan.Plan, f *plan.Flow) (*End, error) {
	e := newEnd(f, "tcp", "receiver")
	own, err := tcpOwn(f)
	if err != nil {
		return nil, err
	}
	config := tcpConfig(p, f, own)
	if own.receiveBuffer > 0 {
		config.ReceiveBuffer = own.receiveBuffer
	}
	receiver, err := tcp.NewReceiver(config)
	if err != nil {
		return nil, err
	}
	e.close = receiver.Close
	e.ends = f.Start + f.Duration + tcpDrain
	e.execute = func(ctx context.Context, t0 time.Time) (any, error) { return receiver.Run(ctx, t0.Add(f.Start)) }
	return e, nil
}

// tcpConfig is what both ends of the flow know.
func tcpConfig(p *plan.Plan, f *plan.Flow, own tcpKeys) tcp.Config {
	value := func(n *int) int {
		if n == nil {
			return 0
		}
		return *n
	}
	c := tcp.Config{
		Sender: netip.AddrPortFrom(f.Src, f.ClientPort), Receiver: netip.AddrPortFrom(f.Dst, f.ServerPort),
		Streams: f.Streams, Token: token(p, f),
		Options: tcp.Options{CongestionControl: *f.CongestionControl, MSS: value(f.MSS), DSCP: value(f.DSCP), NoDelay: own.noDelay},
	}
	if f.PacingBps != nil {
		c.PacingBps = *f.PacingBps
	}
	if f.SocketBuffer != nil {
		c.SendBuffer, c.ReceiveBuffer = *f.SocketBuffer, *f.SocketBuffer
	}
	return c
}
