package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"dumbbell/transports/atou/config"
	"dumbbell/transports/atou/handshake"
	"dumbbell/transports/atou/live"
	"dumbbell/transports/atou/record"
)

func serve(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	var (
		tokenFile = flags.String("token-file", "", "`file` with the secret that the senders have too")
		ready     = flags.String("ready", "", "write address and port to this `file` once flows can come")
		listen    netip.Addr
	)
	flags.Func("listen", "`address` to listen at; default: all", func(s string) (err error) {
		if listen, err = netip.ParseAddr(strings.Trim(s, "[]")); err != nil {
			return errors.New("is no address; the port is in CONFIG")
		}
		return nil
	})
	path, err := parse(flags, args, stderr)
	if err != nil {
		return err
	}
	if *ready != "" {
		var files record.Files
		files.Input("CONFIG", path)
		files.Input("--token-file", *tokenFile)
		if err := files.Distinct("--ready", *ready); err != nil {
			return err
		}
		remove(*ready) // an earlier receiver's
		defer remove(*ready)
	}
	receiver, err := load(path, config.ParseReceiver)
	if err != nil {
		return err
	}
	token, err := handshake.ReadToken(*tokenFile)
	if err != nil {
		return err
	}
	var (
		mu         sync.Mutex // lines are whole
		unreported error      // the first failure
	)
	server, err := live.NewServer(live.ServeConfig{
		Receiver: receiver, Token: token, Listen: listen,
		Opened: func(f live.Flow) {
			mu.Lock()
			defer mu.Unlock()
			tellBuffer(stderr, "serve", "rcvbuf", receiver.RcvBuf, f.RcvBuf, "net.core.rmem_max")
			if receiver.Debug > 0 {
				fmt.Fprintf(stderr, "atou serve: flow %d from %v, %v\n", f.ID.Flow, unmapped(f.From), f.Mode)
			}
		},
		Finished: func(f live.Finished) {
			line, err := json.Marshal(newReceived(&f))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				_, err = stdout.Write(append(line, '\n'))
			}
			if err != nil {
				err = fmt.Errorf("reporting flow %d: %w", f.ID.Flow, err)
				fmt.Fprintf(stderr, "atou serve: %v\n", err)
				unreported = cmp.Or(unreported, err)
			}
		},
	})
	if err != nil {
		return err
	}
	defer server.Close()
	if *ready != "" {
		if err := os.WriteFile(*ready, []byte(server.Addr().String()+"\n"), 0o644); err != nil {
			return fmt.Errorf("saying that it is ready: --ready: %w", err)
		}
	}
	fmt.Fprintf(stderr, "atou serve: listening on %v\n", server.Addr())
	err = server.Run(ctx)
	if n := server.Foreign(); n > 0 {
		fmt.Fprintf(stderr, "atou serve: %d datagrams of strangers, or too late, were not answered\n", n)
	}
	return errors.Join(err, unreported)
}

// remove removes a file, but no device and no link to one.
func remove(path string) {
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
		os.Remove(path)
	}
}

// received is a line of JSON about a flow.
type received struct {
	Flow          uint16  `json:"flow"`
	From          string  `json:"from"`
	Mode          string  `json:"mode"`
	End           string  `json:"end"`
	Error         string  `json:"error,omitempty"`
	OpenedUnixNs  int64   `json:"opened_unix_ns"`
	ElapsedNs     int64   `json:"elapsed_ns"` // from then to the last datagram
	GoodputBps    float64 `json:"goodput_bps"`
	Foreign       uint64  `json:"foreign"`
	SocketDrops   uint64  `json:"socket_drops"`
	UnsentAcks    uint64  `json:"unsent_acks"`
	GRO           bool    `json:"gro"`
	CPUNs         int64   `json:"cpu_ns"`
	SenderConfig  string  `json:"sender_config"`
	AckedSegments *uint64 `json:"acked_segments,omitempty"` // by the sender's end
	record.ReceiverCounts
}

func newReceived(f *live.Finished) received {
	text, _ := f.Sender.AppendText(nil)
	r := received{
		Flow: f.ID.Flow, From: unmapped(f.From).String(), Mode: f.Mode.String(), End: f.End, Error: f.Failure,
		OpenedUnixNs: f.Opened.UnixNano(), ElapsedNs: f.Elapsed.Nanoseconds(), GoodputBps: bps(f.Report.Bytes, f.Report.Elapsed),
		Foreign: f.Foreign, SocketDrops: f.Drops, UnsentAcks: f.Unsent, GRO: f.GRO, CPUNs: f.CPU.Nanoseconds(),
		SenderConfig: string(text), ReceiverCounts: record.CountReceiver(&f.Report),
	}
	if f.Fin != nil {
		r.AckedSegments = &f.Fin.Segments
	}
	return r
}

// unmapped is an address as people write it.
func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

func bps(bytes uint64, over time.Duration) float64 {
	if over <= 0 {
		return 0
	}
	return float64(bytes) * 8 / over.Seconds()
}
