package live

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"dumbbell/traffic/socket"
	"dumbbell/transports/atou/config"
	"dumbbell/transports/atou/handshake"
	"dumbbell/transports/atou/proto"

	"golang.org/x/sys/unix"
)

// ServeConfig is what a receiver needs to know.
type ServeConfig struct {
	Receiver config.Receiver
	Token    *handshake.Token
	Listen   netip.Addr    // invalid: all addresses
	MaxFlows int           // at a time, those that have ended not long ago included; 0: DefaultMaxFlows
	Idle     time.Duration // after which a flow without a datagram ends, unless its time-outs are long; 0: DefaultIdle

	// Both may be called from several goroutines at a time, and may be nil.
	Opened   func(Flow)
	Finished func(Finished)
}

const (
	DefaultMaxFlows = 64
	DefaultIdle     = time.Minute // more than a sender waits for ACKs
)

// A Flow is a flow that has been opened.
type Flow struct {
	ID     proto.ID
	From   netip.AddrPort
	Mode   Mode
	Sender config.Sender // that the sender told, without its drop list
	RcvBuf int           // bytes that the kernel gave
}

// How a flow ended.
const (
	EndFin      = "fin"      // its sender ended it
	EndIdle     = "idle"     // nothing came any more
	EndReplaced = "replaced" // its sender opened another from the same port
	EndStopped  = "stopped"  // the receiver was told to end
	EndFailed   = "failed"   // its socket failed
)

// Finished is what became of a flow.
type Finished struct {
	Flow
	End     string
	Opened  time.Time
	Elapsed time.Duration // since then, to the last datagram
	Report  proto.ReceiverStats
	Fin     *proto.Fin // of the sender; nil if there was none
	Foreign uint64     // datagrams of another flow, damaged, or of a wrong size
	Drops   uint64     // datagrams, or trains of them, that the socket had no room for
	Unsent  uint64     // ACKs that the host refused to send
	GRO     bool
	CPU     time.Duration
	Failure string // of the socket
}

// A Server receives flows.
type Server struct {
	config ServeConfig
	baker  *handshake.Baker
	clock  clock // of cookies
	fd     int
	stop   int // an eventfd, readable once the server is to end
	local  netip.AddrPort

	mu    sync.Mutex
	conns map[netip.AddrPort]bool
	last  uint16 // number of a flow
	wait  sync.WaitGroup

	foreign atomic.Uint64
	ended   atomic.Bool
}

// NewServer opens the socket: datagrams queue there from now on.
func NewServer(c ServeConfig) (_ *Server, err error) {
	if c.MaxFlows == 0 {
		c.MaxFlows = DefaultMaxFlows
	}
	if c.Idle == 0 {
		c.Idle = DefaultIdle
	}
	s := &Server{config: c, baker: handshake.NewBaker(), clock: clock{time.Now()}, conns: map[netip.AddrPort]bool{}}
	all := !c.Listen.IsValid()
	if all {
		c.Listen = netip.IPv6Unspecified() // and IPv4
	}
	s.fd, err = listen(netip.AddrPortFrom(c.Listen, uint16(c.Receiver.Port)))
	if all && (errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL)) {
		s.fd, err = listen(netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(c.Receiver.Port)))
	}
	if err != nil {
		return nil, err
	}
	if s.local, err = socket.LocalAddr(s.fd); err == nil {
		s.config.Receiver.Port = int(s.local.Port()) // where 0 was asked
		s.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	}
	if err != nil {
		unix.Close(s.fd)
		return nil, err
	}
	return s, nil
}

// listen makes the socket where flows are opened. Only one can have its port:
// that others share it is allowed when it is bound, for the flows' sockets.
func listen(at netip.AddrPort) (fd int, err error) {
	fd, err = socket.Open(at.Addr())
	if err != nil {
		return -1, err
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	if at.Addr() == netip.IPv6Unspecified() {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0); err != nil {
			return -1, os.NewSyscallError("setsockopt", err)
		}
	}
	if err := unix.Bind(fd, socket.Sockaddr(at)); err != nil {
		return -1, fmt.Errorf("binding to %v: %w", at, err)
	}
	level, option := unix.IPPROTO_IP, unix.IP_PKTINFO
	if !at.Addr().Is4() {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO
	}
	if err := unix.SetsockoptInt(fd, level, option, 1); err != nil {
		return -1, os.NewSyscallError("setsockopt", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return -1, os.NewSyscallError("setsockopt", err)
	}
	return fd, nil
}

// Addr is where the server listens.
func (s *Server) Addr() netip.AddrPort { return s.local }

// Foreign counts datagrams at the socket where flows are opened that opened
// none: of strangers, damaged, late, or too many.
func (s *Server) Foreign() uint64 { return s.foreign.Load() }

// Close closes the sockets of a server that has ended, or was never run.
func (s *Server) Close() error { return errors.Join(unix.Close(s.fd), unix.Close(s.stop)) }

// Run receives until the context ends. Flows that are open then end too.
func (s *Server) Run(ctx context.Context) error {
	defer s.wait.Wait()
	end := func() {
		s.ended.Store(true)
		unix.Write(s.stop, []byte{7: 1}) // any number but 0
	}
	defer end()
	defer context.AfterFunc(ctx, end)()
	var (
		buffer = make([]byte, 1<<16)
		oob    = make([]byte, controlBytes)
		fds    = []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}, {Fd: int32(s.stop), Events: unix.POLLIN}}
	)
	for ctx.Err() == nil {
		if _, err := unix.Ppoll(fds, nil, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("waiting for flows on %v: %w", s.local, err)
		}
		n, oobn, _, from, err := unix.Recvmsg(s.fd, buffer, oob, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR), soft(err):
			continue
		case err != nil:
			return fmt.Errorf("receiving on %v: %w", s.local, err)
		}
		local, info := destination(oob[:oobn])
		g := greeter{server: s, from: socket.AddrPort(from), reply: func(b []byte) {
			unix.SendmsgN(s.fd, b, info, from, unix.MSG_DONTWAIT) // what is lost is asked for again
		}}
		if open := g.greet(buffer[:n], 0); open != nil {
			s.open(&g, netip.AddrPortFrom(local, s.local.Port()), open)
		}
	}
	return nil
}

// destination is the address that a datagram was sent to, and the control
// message by which an answer comes from it.
func destination(oob []byte) (local netip.Addr, info []byte) {
	h, data, _, err := unix.ParseOneSocketControlMessage(oob)
	switch {
	case err != nil:
	case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
		// ifindex, then the local address, then that of the header.
		local = netip.AddrFrom4([4]byte(data[4:8]))
		info = unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: local.As4()})
	case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
		local = netip.AddrFrom16([16]byte(data[:16]))
		info = unix.PktInfo6(&unix.Inet6Pktinfo{Addr: local.As16()})
	}
	return local, info
}

// A greeter answers the greetings of one address.
type greeter struct {
	server *Server
	from   netip.AddrPort
	reply  func([]byte)
}

// greet answers a hello. Of an opening whose cookie was made after a time it
// returns what it asks for. All else is counted, and not answered.
func (g *greeter) greet(b []byte, after time.Duration) *handshake.Open {
	s := g.server
	now := s.clock.now()
	kind, _, err := proto.Peek(b)
	switch {
	case err == nil && kind == proto.TypeHello:
		var nonce handshake.Nonce
		if nonce, err = s.config.Token.ReadHello(b); err == nil {
			cookie := s.baker.Bake(now, g.from, nonce)
			g.reply(s.config.Token.AppendChallenge(nil, nonce, &cookie))
			return nil
		}
	case err == nil && kind == proto.TypeOpen:
		var open handshake.Open
		if open, err = s.config.Token.ReadOpen(b); err == nil {
			err = s.baker.Check(now, g.from, open.Nonce, &open.Cookie)
		}
		if err == nil && open.Cookie.Issued() > after {
			return &open
		}
	}
	s.foreign.Add(1)
	return nil
}

func (g *greeter) answer(a *handshake.Answer) { g.reply(g.server.config.Token.AppendAnswer(nil, a)) }

func (g *greeter) refuse(open *handshake.Open, format string, args ...any) {
	g.answer(&handshake.Answer{Nonce: open.Nonce, Refused: true, Text: fmt.Sprintf(format, args...)})
}

// open makes a connection for the first flow of an address.
func (s *Server) open(g *greeter, local netip.AddrPort, open *handshake.Open) {
	s.mu.Lock()
	exists, full := s.conns[g.from], len(s.conns) >= s.config.MaxFlows
	if !exists && !full {
		s.conns[g.from] = true
	}
	s.mu.Unlock()
	if exists { // it came before the connection was there; it will come again
		return
	}
	if full {
		g.refuse(open, "there are %d flows already", s.config.MaxFlows)
		return
	}
	c, err := newConn(s, g.from, local)
	if err == nil {
		if err = c.open(open); err != nil {
			unix.Close(c.fd)
		}
	}
	if err != nil {
		s.forget(g.from)
		g.refuse(open, "%v", err)
		return
	}
	s.wait.Go(func() {
		c.run()
		s.forget(g.from)
	})
}

func (s *Server) forget(from netip.AddrPort) {
	s.mu.Lock()
	delete(s.conns, from)
	s.mu.Unlock()
}

// number is that of a new flow: not that of one not long ago.
func (s *Server) number() uint16 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last++; s.last == 0 {
		s.last = 1
	}
	return s.last
}

// parseSender reads the configuration that a sender told.
func parseSender(text string) (config.Sender, error) {
	return config.ParseSender(strings.NewReader(text), "the sender's configuration")
}
