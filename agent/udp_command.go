package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"dumbbell/traffic/udp"
)

// mainUDPSend sends a flow by hand: its intervals and then its result go to
// standard output as JSON lines.
func mainUDPSend(ctx context.Context, args []string) int {
	var (
		flags    = newFlags("udp-send")
		to       = flags.String("to", "", "`ADDRESS:PORT` of the receiver")
		from     = flags.String("from", "", "`ADDRESS:PORT` to send from; default: the kernel chooses")
		rate     = flags.String("rate", "", "payload bits/s: `RATE`, or a schedule such as 0s:100mbit,5s:0,10s:1gbit")
		size     = flags.Int("size", 1472, "payload `bytes` of a datagram")
		duration = flags.Duration("duration", 10*time.Second, "`time` to send for")
		name     = flags.String("flow", "", "`name` that the receiver was given too")
		interval = flags.Duration("interval", 100*time.Millisecond, "`time` between the lines of output")
	)
	if !parseFlags(flags, args, "to", "rate") {
		return 2
	}
	steps, err := udp.ParseSteps(*rate)
	if err != nil {
		return wrongUsage(flags, "rate", err)
	}
	config := udp.SenderConfig{
		Token:    udp.Token(*name),
		Schedule: udp.Schedule{Steps: steps, Duration: *duration, Size: *size},
		Interval: *interval,
		Report:   func(r udp.SentReport) { printJSON(r) },
	}
	if config.To, err = netip.ParseAddrPort(*to); err != nil {
		return wrongUsage(flags, "to", err)
	}
	if *from != "" {
		if config.From, err = netip.ParseAddrPort(*from); err != nil {
			return wrongUsage(flags, "from", err)
		}
	}
	sender, err := udp.NewSender(config)
	if err != nil {
		return failed(flags, err)
	}
	defer sender.Close()
	result, err := sender.Run(ctx, time.Now())
	printJSON(result)
	if err != nil {
		return failed(flags, err)
	}
	if !result.Held() {
		return failed(flags, fmt.Errorf("the rate was not held: %d of %d datagrams sent", result.SentPackets, result.AskedPackets))
	}
	return 0
}

// mainUDPReceive receives a flow by hand, likewise.
func mainUDPReceive(ctx context.Context, args []string) int {
	var (
		flags    = newFlags("udp-receive")
		listen   = flags.String("listen", "", "`ADDRESS:PORT` to listen on")
		duration = flags.Duration("duration", 0, "`time` to wait for the sender's end; default: for ever")
		name     = flags.String("flow", "", "`name` that the sender was given too")
		interval = flags.Duration("interval", 100*time.Millisecond, "`time` between the lines of output")
	)
	if !parseFlags(flags, args, "listen") {
		return 2
	}
	config := udp.ReceiverConfig{
		Token:    udp.Token(*name),
		Interval: *interval,
		Report:   func(r udp.ReceivedReport) { printJSON(r) },
	}
	var err error
	if config.Listen, err = netip.ParseAddrPort(*listen); err != nil {
		return wrongUsage(flags, "listen", err)
	}
	if *duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *duration)
		defer cancel()
	}
	receiver, err := udp.NewReceiver(config)
	if err != nil {
		return failed(flags, err)
	}
	defer receiver.Close()
	result, err := receiver.Run(ctx)
	printJSON(result)
	if err == nil && !result.EndSeen {
		err = fmt.Errorf("the sender did not end: what was lost after the last datagram is not known")
	}
	if err != nil {
		return failed(flags, err)
	}
	return 0
}

func newFlags(command string) *flag.FlagSet {
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "usage: dumbbell-agent %s [options]\n", command)
		flags.PrintDefaults()
	}
	return flags
}

// parseFlags parses the options of a command, of which some are required, and
// says what is wrong with them.
func parseFlags(flags *flag.FlagSet, args []string, required ...string) bool {
	if flags.Parse(args) != nil {
		return false
	}
	given := make(map[string]bool)
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for _, name := range required {
		if !given[name] {
			wrongUsage(flags, name, fmt.Errorf("missing"))
			return false
		}
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "dumbbell-agent %s: what is %q?\n", flags.Name(), flags.Arg(0))
		return false
	}
	return true
}

func wrongUsage(flags *flag.FlagSet, option string, err error) int {
	fmt.Fprintf(os.Stderr, "dumbbell-agent %s: --%s: %v\n", flags.Name(), option, err)
	return 2
}

func failed(flags *flag.FlagSet, err error) int {
	fmt.Fprintf(os.Stderr, "dumbbell-agent %s: %v\n", flags.Name(), err)
	return 1
}

// printJSON writes one line; a reader that has gone is no reason to stop.
func printJSON(v any) {
	line, err := json.Marshal(v)
	if err == nil {
		io.WriteString(os.Stdout, string(line)+"\n")
	}
}
