package http

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"dumbbell/collectors/sample"
	"dumbbell/collectors/tcpinfo"

	"golang.org/x/sys/unix"
)

// body is what bodies are made of.
var body [64 << 10]byte

// atOnce is how many pieces are handed to the kernel in one call.
const atOnce = 1024

// A ServerConfig describes the end of a flow that sends the bodies.
type ServerConfig struct {
	Config
	Report func(Served) // called by the connections, which may be several
}

// A Served is what became of a request.
type Served struct {
	Number    int // of the fetch
	Begin     time.Time
	SentBytes int64 // of the body, handed to the kernel
	Err       error
	Socket    *tcpinfo.Own // when all has arrived, or the connection has failed
}

// A ServerResult counts what came.
type ServerResult struct {
	Served      int64 `json:"served"`
	Connections int64 `json:"connections"`
	Foreign     int64 `json:"foreign"` // connections that asked for something else
}

// A Server is the end of a flow that sends the bodies.
type Server struct {
	config   ServerConfig
	header   []byte
	listener *net.TCPListener

	served, connections, foreign atomic.Int64
}

// NewServer listens.
func NewServer(config ServerConfig) (*Server, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	listen := net.ListenConfig{KeepAlive: -1, Control: func(_, _ string, raw syscall.RawConn) error {
		return config.setCongestionControl(raw)
	}}
	listen.SetMultipathTCP(false)
	listener, err := listen.Listen(context.Background(), "tcp", config.Server.String())
	if err != nil {
		return nil, err
	}
	return &Server{
		config: config, listener: listener.(*net.TCPListener),
		header: fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n", config.Bytes),
	}, nil
}

// Addr is where the server listens.
func (s *Server) Addr() netip.AddrPort { return s.listener.Addr().(*net.TCPAddr).AddrPort() }

// Close ends listening.
func (s *Server) Close() error { return s.listener.Close() }

// Run answers until the context ends, and then ends all connections.
func (s *Server) Run(ctx context.Context) (ServerResult, error) {
	stop := context.AfterFunc(ctx, func() { s.listener.SetDeadline(time.Now()) })
	defer stop()
	var all sync.WaitGroup
	var failure error
	for failure == nil {
		conn, err := s.listener.AcceptTCP()
		if err == nil {
			s.connections.Add(1)
			all.Go(func() { s.serve(ctx, conn) })
		} else if ctx.Err() == nil {
			failure = err
		} else {
			break
		}
	}
	all.Wait()
	return ServerResult{s.served.Load(), s.connections.Load(), s.foreign.Load()}, failure
}

// serve answers what comes over a connection. Only when the client asks for
// more or closes, all of the body before has arrived, and the kernel's counts of
// it are complete.
func (s *Server) serve(ctx context.Context, conn *net.TCPConn) {
	defer conn.Close()
	s.config.Sockets.Add(conn)
	defer s.config.Sockets.Remove(conn)
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	reader := bufio.NewReader(conn)
	for before := (*Served)(nil); ; {
		request, err := nethttp.ReadRequest(reader)
		if before != nil {
			s.report(conn, before, err)
		}
		if err != nil {
			return
		}
		text, own := strings.CutPrefix(request.RequestURI, s.config.Path)
		number, notNumber := strconv.Atoi(text)
		if !own || notNumber != nil {
			s.foreign.Add(1)
			return
		}
		before = &Served{Number: number, Begin: time.Now()}
		before.SentBytes, before.Err = s.answer(conn, request.Close)
	}
}

// answer sends a body, and the end of the connection if it was the last.
// Corked, the kernel sends that end with the last data: a client that has all
// closes after the server, whose port it is that waits for packets under way.
func (s *Server) answer(conn *net.TCPConn, last bool) (sent int64, err error) {
	if last {
		raw, err := conn.SyscallConn()
		if err == nil {
			err = setOption(raw, "TCP_CORK", func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_CORK, 1) })
		}
		if err != nil {
			return 0, err
		}
	}
	if sent, err = s.send(conn); err == nil && last {
		err = conn.CloseWrite()
	}
	return sent, err
}

// report reports an answer after which the connection was read: without an
// error or to its end, if all went well.
func (s *Server) report(conn *net.TCPConn, served *Served, readErr error) {
	if served.Err == nil && readErr != nil && readErr != io.EOF {
		served.Err = readErr
	}
	var err error
	served.Socket, err = tcpinfo.ReadOwn(conn)
	served.Err = errors.Join(served.Err, err)
	s.served.Add(1)
	s.config.Report(*served)
}

// send hands header and body to the kernel in one piece, if they are not very
// long: so it makes full segments of them.
func (s *Server) send(conn *net.TCPConn) (int64, error) {
	pieces := net.Buffers{s.header}
	sent := -int64(len(s.header))
	for left := s.config.Bytes; left > 0; {
		for ; left > 0 && len(pieces) < atOnce; left -= int64(len(pieces[len(pieces)-1])) {
			pieces = append(pieces, body[:min(left, int64(len(body)))])
		}
		n, err := pieces.WriteTo(conn)
		sent += n
		if err != nil {
			return max(sent, 0), err
		}
		pieces = pieces[:0]
	}
	return sent, nil
}

// Time is when the request came.
func (s Served) Time() time.Time { return s.Begin }

// AddFields adds the answer to a row.
func (s Served) AddFields(rows *sample.Rows) {
	rows.Int("fetch", int64(s.Number))
	rows.Int("sent_bytes", s.SentBytes)
	addEnd(rows, s.Socket, s.Err)
}
