package http

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

// TestTransfers: each begins at its time, also while those before it are under way, and has its own size.
func TestTransfers(t *testing.T) {
	t.Parallel()
	transfers := []Transfer{{0, 64 << 20}, {10 * time.Millisecond, 1}, {10 * time.Millisecond, 3000}, {30 * time.Millisecond, 1 << 20}}
	f := serve(t, Config{Server: loopback("127.0.0.1"), Transfers: transfers})
	config := ClientConfig{Config: f.Config, From: f.Server.Addr()}
	byNumber := make(map[int]Fetched)
	config.Report = func(f Fetched) { byNumber[f.Number] = f }
	client, err := NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now().Add(20 * time.Millisecond)
	result, err := client.Run(t.Context(), start)
	if want := (ClientResult{Asked: 4, Begun: 4, Done: 4, Connections: 4}); err != nil || result != want {
		t.Errorf("%+v, %v, want %+v", result, err, want)
	}
	f.await(t, 4)
	if served := f.end(); served != (ServerResult{Served: 4, Connections: 4}) {
		t.Errorf("server %+v", served)
	}
	for i, transfer := range transfers {
		got, sent := byNumber[i+1], f.served[i+1][0]
		if got.ReceivedBytes != transfer.Bytes || sent.SentBytes != transfer.Bytes || got.Completion == 0 {
			t.Errorf("transfer %d of %d bytes: %+v, %+v", i+1, transfer.Bytes, got, sent)
		}
		if early := start.Add(transfer.At).Sub(got.Begin); early > 0 {
			t.Errorf("transfer %d began %v early", i+1, early)
		}
	}
}

// TestTransfersOverlap: one whose server does not answer keeps no other from its begin, and the end cuts all.
func TestTransfersOverlap(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	c := config(silent)
	c.Bytes, c.Transfers = 0, []Transfer{{0, 1}, {20 * time.Millisecond, 1}, {40 * time.Millisecond, 1}, {time.Hour, 1}}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	all, result, err := fetch(t, ctx, ClientConfig{Config: c})
	if want := (ClientResult{Asked: 4, Begun: 3, Cut: 3, Connections: 3}); err != nil || result != want || len(all) != 3 {
		t.Errorf("%+v, %v, want %+v; %d reports", result, err, want, len(all))
	}
}

// TestNoSuchTransfer asks for transfers that the flow has not.
func TestNoSuchTransfer(t *testing.T) {
	t.Parallel()
	f := serve(t, Config{Server: loopback("127.0.0.1"), Transfers: []Transfer{{0, 10}}})
	for _, number := range []int{-1, 0, 2} {
		conn, err := net.Dial("tcp", f.Server.String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET %s%d HTTP/1.1\r\nHost: x\r\n\r\n", f.Path, number)
		if answer, _ := io.ReadAll(conn); len(answer) > 0 {
			t.Errorf("%d is answered with %q", number, answer)
		}
		conn.Close()
	}
	if got := f.end(); got.Foreign != 3 || got.Served != 0 {
		t.Errorf("%+v", got)
	}
	for _, wrong := range [][]Transfer{{}, {{0, 0}}, {{-1, 1}}, {{2, 1}, {1, 1}}} {
		if err := CheckTransfers(wrong); (err == nil) != (len(wrong) == 0) {
			t.Errorf("%v: %v", wrong, err)
		}
	}
}
