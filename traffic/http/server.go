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
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"dumbbell/collectors/row"
	"dumbbell/collectors/tcpinfo"
	"dumbbell/traffic/guard"

	"golang.org/x/sys/unix"
)

// body is what bodies are made of.
var body [64 << 10]byte

const (
	// requestBytes is the longest request that is read: the client's has some 100 bytes.
	requestBytes = 4 << 10

	// requestTime is how long a request may take once its first byte has come, or
	// its connection if it is the first. It holds retransmissions on a path that
	// loses much.
	requestTime = time.Minute

	// silentMax is how many connections may be there that have not asked for a
	// fetch yet. The client asks as soon as it is connected.
	silentMax = 64
)

// atOnce is how many pieces are handed to the kernel in one call.
const atOnce = 1024

// A ServerConfig describes the end of a flow that sends the bodies.
type ServerConfig struct {
	Config
	Client netip.Addr   // nobody else may connect; invalid: anybody
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
	Connections int64 `json:"connections"` // that asked for a fetch
	Foreign     int64 `json:"foreign"`     // that did not, or later for something else; they are in no other count
}

// A Server is the end of a flow that sends the bodies.
type Server struct {
	config   ServerConfig
	listener *net.TCPListener

	served, connections, foreign atomic.Int64

	mu     sync.Mutex
	silent []*net.TCPConn // that have not asked for a fetch yet, the oldest first
}

// NewServer listens.
func NewServer(config ServerConfig) (*Server, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	port := guard.Port{Local: config.Server, Peer: config.Client}
	listen := net.ListenConfig{KeepAlive: -1, Control: func(network, address string, raw syscall.RawConn) error {
		return errors.Join(port.Control(network, address, raw), config.setCongestionControl(raw))
	}}
	listen.SetMultipathTCP(false)
	listener, err := listen.Listen(context.Background(), "tcp", config.Server.String())
	if err != nil {
		return nil, err
	}
	return &Server{config: config, listener: listener.(*net.TCPListener)}, nil
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
			s.admit(conn)
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

// admit takes a connection that has not asked yet. If there are too many of
// them, the oldest is ended: the flow's own client asks at once.
func (s *Server) admit(conn *net.TCPConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.silent) == silentMax {
		refuse(s.silent[0])
		s.silent = s.silent[1:]
	}
	s.silent = append(s.silent, conn)
}

// spoke forgets that a connection has not asked yet.
func (s *Server) spoke(conn *net.TCPConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.silent, conn); i >= 0 {
		s.silent = slices.Delete(s.silent, i, i+1)
	}
}

// refuse ends a connection at once: nothing of it stays, not even in TIME_WAIT.
func refuse(conn *net.TCPConn) {
	conn.SetLinger(0)
	conn.Close()
}

// serve answers what comes over a connection, which is the flow's own once it
// has asked for a fetch. Only when the client asks for more or closes, all of
// the body before has arrived, and the kernel's counts of it are complete.
func (s *Server) serve(ctx context.Context, conn *net.TCPConn) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	limited := io.LimitedReader{R: conn}
	reader := bufio.NewReader(&limited)
	for before := (*Served)(nil); ; {
		limited.N = requestBytes
		var err error
		if before != nil { // the client may think before it asks again
			_, err = reader.Peek(1)
		}
		var request *nethttp.Request
		var number int
		if err == nil {
			request, number, err = s.read(ctx, conn, reader)
		}
		foreign := before == nil && err != nil || errors.Is(err, errForeign)
		switch {
		case foreign:
			s.foreign.Add(1)
			if before != nil {
				s.report(conn, before, nil)
			}
			refuse(conn)
		case before != nil:
			s.report(conn, before, err)
		default:
			s.connections.Add(1)
			s.config.Sockets.Add(conn)
			defer s.config.Sockets.Remove(conn)
		}
		if err != nil {
			return
		}
		before = &Served{Number: number, Begin: time.Now()}
		before.SentBytes, before.Err = s.answer(conn, number, request.Close)
	}
}

var errForeign = errors.New("no fetch of this flow")

// read reads a request for a fetch.
func (s *Server) read(ctx context.Context, conn *net.TCPConn, reader *bufio.Reader) (*nethttp.Request, int, error) {
	conn.SetReadDeadline(time.Now().Add(requestTime))
	if ctx.Err() != nil { // else its own deadline comes later, and holds
		return nil, 0, ctx.Err()
	}
	request, err := nethttp.ReadRequest(reader)
	s.spoke(conn)
	if err != nil {
		return nil, 0, err
	}
	text, own := strings.CutPrefix(request.RequestURI, s.config.Path)
	number, err := strconv.Atoi(text)
	if _, known := s.config.bytes(number); !own || err != nil || !known {
		return nil, 0, fmt.Errorf("asked for %.100q: %w", request.RequestURI, errForeign)
	}
	conn.SetReadDeadline(time.Time{})
	if ctx.Err() != nil {
		return nil, 0, ctx.Err()
	}
	return request, number, nil
}

// answer sends a body, and the end of the connection if it was the last.
// Corked, the kernel sends that end with the last data: a client that has all
// closes after the server, whose port it is that waits for packets under way.
func (s *Server) answer(conn *net.TCPConn, number int, last bool) (sent int64, err error) {
	if last {
		raw, err := conn.SyscallConn()
		if err == nil {
			err = setOption(raw, "TCP_CORK", func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_CORK, 1) })
		}
		if err != nil {
			return 0, err
		}
	}
	if sent, err = s.send(conn, number); err == nil && last {
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
func (s *Server) send(conn *net.TCPConn, number int) (int64, error) {
	left, _ := s.config.bytes(number)
	header := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n", left)
	pieces := net.Buffers{header}
	sent := -int64(len(header))
	for left > 0 {
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
func (s Served) AddFields(rows *row.Rows) {
	rows.Int("fetch", int64(s.Number))
	rows.Int("sent_bytes", s.SentBytes)
	addEnd(rows, s.Socket, s.Err)
}
