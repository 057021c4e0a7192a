package tcpinfo

import (
	"errors"
	"io"
	"testing"
)

// TestOwn compares what a process reads of its own socket with what INET_DIAG
// says of it, and goes on when INET_DIAG has nothing to say any more.
func TestOwn(t *testing.T) {
	for _, network := range []string{"tcp4", "tcp6"} {
		t.Run(network, func(t *testing.T) {
			client, server, _ := pair(t, network)
			setCongestionControl(t, client, "reno")
			exchange(t, client, server, 100_000)
			own, err := ReadOwn(client)
			check(t, err)
			var s Sample
			diag := dial(t)
			check(t, diag.Get(TCP, tuple(client), &s))
			if own.Cookie != s.Cookie || own.CongestionControl != "reno" || len(own.Info) != len(s.Info) {
				t.Errorf("%+v, INET_DIAG says %+v", own, s)
			}
			for _, name := range []string{"state", "snd_mss", "bytes_acked", "bytes_sent", "data_segs_out"} {
				got, _ := own.Info.Value(FieldByName(name))
				if want, ok := s.Info.Value(FieldByName(name)); !ok || got != want {
					t.Errorf("%s is %d, INET_DIAG says %d", name, got, want)
				}
			}

			// The client ends the connection first, and its port waits.
			check(t, client.CloseWrite())
			if _, err := server.Read(make([]byte, 1)); err != io.EOF {
				t.Fatalf("the server reads %v", err)
			}
			check(t, server.Close())
			if _, err := client.Read(make([]byte, 1)); err != io.EOF {
				t.Fatalf("the client reads %v", err)
			}
			if err := diag.Get(TCP, tuple(client), &s); !errors.Is(err, ErrNotFound) {
				t.Errorf("INET_DIAG: %v", err)
			}
			ended, err := ReadOwn(client)
			check(t, err)
			sent, _ := ended.Info.Value(FieldByName("bytes_sent"))
			again, _ := ended.Info.Value(FieldByName("bytes_retrans"))
			if ended.Cookie != own.Cookie || ended.CongestionControl != "reno" || sent-again != 100_000 {
				t.Errorf("at the end: %+v, %d bytes sent, %d of them again", ended, sent, again)
			}
			check(t, client.Close())
			if _, err := ReadOwn(client); err == nil {
				t.Error("a closed socket is read")
			}
		})
	}
}

func TestOwnSockets(t *testing.T) {
	client, server, _ := pair(t, "tcp4")
	exchange(t, client, server, 1000)
	sockets := NewOwnSockets(nil)
	count := func() int {
		rows := newRows(t)
		check(t, sockets.Sample(rows))
		return len(fieldsOf(t, rows, "tcp_info"))
	}
	for i, change := range []func(){
		func() {},
		func() { sockets.Add(client) },
		func() { sockets.Add(server) },
		func() { sockets.Remove(client) },
		func() { sockets.Remove(client) },
		func() { sockets.Remove(server) },
	} {
		change()
		if got, want := count(), []int{0, 1, 2, 1, 1, 0}[i]; got != want {
			t.Errorf("after change %d there are %d rows, not %d", i, got, want)
		}
	}
	var none *OwnSockets
	none.Add(client)
	none.Remove(client)
}
