package kind

import (
	"context"
	"net/netip"
	"time"

	"dumbbell/agent/plan"
	"dumbbell/collectors/tcpinfo"
	"dumbbell/traffic/udp"
)

// Datagrams of the agent's own, at both ends.

func init() {
	addKind(Kind{Name: "udp", Program: "udp", Protocol: tcpinfo.UDP, Sampling: Never, Check: checkUDP, Foreign: func(f *plan.Flow, require plan.Require) {
		require(f.PayloadBytes == 0 && f.RateSteps == nil, "", "payload_bytes and rate_steps belong to a udp flow")
	}})
	addTask(Task{Kind: "udp_receive", Role: Server, Open: newUDPReceiver})
	addTask(Task{Kind: "udp_send", Role: Client, Open: newUDPSender})
}

// udpDrain is how long after the end of its flow a receiver waits for the
// sender's end markers.
const udpDrain = 5 * time.Second

func checkUDP(f *plan.Flow, require plan.Require) {
	requireDatagrams(f, require)
	require(f.Streams == 1, ".streams", "a udp flow has one, not %d", f.Streams)
	if f.RateBps != nil {
		err := schedule(f).Check()
		require(err == nil, "", "%v", err)
	}
}

func newUDPSender(p *plan.Plan, f *plan.Flow) (*End, error) {
	e := newEnd(f, "udp", "sender")
	e.begins += schedule(f).First()
	sender, err := udp.NewSender(udp.SenderConfig{
		From:     netip.AddrPortFrom(f.Src, f.ClientPort),
		To:       netip.AddrPortFrom(f.Dst, f.ServerPort),
		Token:    token(p, f),
		Schedule: schedule(f),
		Interval: p.SamplingInterval,
		Started:  func(t time.Time) { e.started <- t },
		Report:   func(r udp.SentReport) { e.reports <- r },
	})
	if err != nil {
		return nil, err
	}
	e.close = sender.Close
	e.execute = func(ctx context.Context, t0 time.Time) (any, error) { return sender.Run(ctx, t0.Add(f.Start)) }
	return e, nil
}

func newUDPReceiver(p *plan.Plan, f *plan.Flow) (*End, error) {
	e := newEnd(f, "udp", "receiver")
	receiver, err := udp.NewReceiver(udp.ReceiverConfig{
		Listen:   netip.AddrPortFrom(f.Dst, f.ServerPort),
		From:     netip.AddrPortFrom(f.Src, f.ClientPort),
		Token:    token(p, f),
		Interval: p.SamplingInterval,
		Report:   func(r udp.ReceivedReport) { e.reports <- r },
	})
	if err != nil {
		return nil, err
	}
	e.close = receiver.Close
	e.ends = f.Start + f.Duration + udpDrain
	e.execute = func(ctx context.Context, _ time.Time) (any, error) { return receiver.Run(ctx) }
	return e, nil
}

// token tells the flow's datagrams from those of any other run.
func token(p *plan.Plan, f *plan.Flow) uint64 {
	return udp.Token(p.RunID + "/" + p.Phase + "/" + f.Name)
}

// schedule is the flow's rate over time, which its plan may change after the start.
func schedule(f *plan.Flow) udp.Schedule {
	return udp.Schedule{
		Steps:    append([]udp.Step{{RateBps: *f.RateBps}}, f.RateSteps...),
		Duration: f.Duration,
		Size:     f.PayloadBytes,
	}
}
