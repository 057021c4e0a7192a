package http

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"strings"
	"testing"
	"time"
)

// TestEndCuts ends a flow in the middle of a body.
func TestEndCuts(t *testing.T) {
	for _, persistent := range []bool{false, true} {
		t.Run(fmt.Sprint("persistent ", persistent), func(t *testing.T) {
			t.Parallel()
			f := serve(t, Config{Server: loopback("127.0.0.1"), Bytes: 1 << 50})
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			all, result, err := fetch(t, ctx, ClientConfig{Config: f.Config, Count: 3, Persistent: persistent})
			if err != nil {
				t.Fatal(err)
			}
			if want := (ClientResult{Asked: 3, Begun: 1, Cut: 1, Connections: 1}); result != want {
				t.Errorf("%+v, want %+v", result, want)
			}
			got := all[0]
			if got.Cut < got.FirstByte || got.Err != nil || got.Completion != 0 || got.FirstByte == 0 || got.ReceivedBytes == 0 {
				t.Errorf("%+v", got)
			}
			f.await(t, 1)
			if len(f.served[1]) != 1 || f.served[1][0].Err == nil || f.served[1][0].SentBytes < got.ReceivedBytes {
				t.Errorf("server: %+v, client got %d bytes", f.served, got.ReceivedBytes)
			}
		})
	}
}

// TestEndCutsConnecting ends a flow that nobody answers.
func TestEndCutsConnecting(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts nothing: asked, it says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	all, result, err := fetch(t, ctx, ClientConfig{Config: config(silent), Count: 1})
	if err != nil || result.Cut != 1 || all[0].Cut == 0 || all[0].FirstByte != 0 {
		t.Errorf("%+v, %+v, %v", all, result, err)
	}
}

func config(l net.Listener) Config {
	return Config{Server: l.Addr().(*net.TCPAddr).AddrPort(), Path: "/x/", Bytes: 1000, CongestionControl: "cubic"}
}

// TestRefused has no server: every fetch fails, is reported, and is followed by a pause.
func TestRefused(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	all, result, err := fetch(t, t.Context(), ClientConfig{Config: config(l), Count: 3})
	if err == nil || !strings.Contains(err.Error(), "3 of 3 fetches failed, the first: ") || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("error %v", err)
	}
	if result.Begun != 3 || result.Failed != 3 || result.Connections != 0 || len(all) != 3 {
		t.Errorf("%+v of %d reports", result, len(all))
	}
	for i, f := range all {
		if f.Err == nil || f.Socket != nil || f.Completion != 0 || i > 0 && f.Begin.Sub(all[i-1].Begin) < failurePause {
			t.Errorf("%+v", f)
		}
	}
}

// TestBadAnswers has a server that does what no good one does, and then answers well.
func TestBadAnswers(t *testing.T) {
	good := "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + strings.Repeat("x", 1000)
	for name, test := range map[string]struct {
		answer string
		reset  bool
		want   string
	}{
		"none":             {"", false, "waiting for the answer: EOF"},
		"none, and reset":  {"", true, "waiting for the answer: read tcp"},
		"no HTTP":          {"what?\n", false, "reading the answer: malformed HTTP response"},
		"half a header":    {good[:20], false, "reading the answer: "},
		"another status":   {"HTTP/1.1 404 Not Found\r\nContent-Length: 1000\r\n\r\n", false, "the answer is 404 Not Found with 1000 bytes, not 1000"},
		"another length":   {"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n" + good, false, "the answer is 200 OK with 999 bytes, not 1000"},
		"no length":        {"HTTP/1.1 200 OK\r\n\r\n" + good, false, "the answer is 200 OK with -1 bytes, not 1000"},
		"half a body":      {good[:len(good)-400], false, "after 600 of 1000 bytes: unexpected EOF"},
		"half, then reset": {good[:len(good)-400], true, "after "},
	} {
		for _, persistent := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", persistent ", persistent), func(t *testing.T) {
				t.Parallel()
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				go func() {
					for n := 0; ; n++ {
						conn, err := l.Accept()
						if err != nil {
							return
						}
						if _, err := nethttp.ReadRequest(bufio.NewReader(conn)); err != nil {
							t.Error(err)
						}
						if n > 0 {
							io.WriteString(conn, good)
							continue // and left open
						}
						io.WriteString(conn, test.answer)
						if test.reset {
							conn.(*net.TCPConn).SetLinger(0)
						}
						conn.Close()
					}
				}()
				all, result, err := fetch(t, t.Context(), ClientConfig{Config: config(l), Count: 2, Persistent: persistent})
				if err == nil || !strings.Contains(err.Error(), "1 of 2 fetches failed, the first: "+test.want) {
					t.Errorf("error %v, want %s", err, test.want)
				}
				if result.Done != 1 || result.Failed != 1 || result.Connections != 2 || all[0].Completion != 0 || all[1].Completion == 0 {
					t.Errorf("%+v, %+v", result, all)
				}
			})
		}
	}
}
