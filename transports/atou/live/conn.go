package live

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"dumbbell/traffic/socket"
	"dumbbell/transports/atou/handshake"
	"dumbbell/transports/atou/proto"

	"golang.org/x/sys/unix"
)

const dataMessages = 32

// A conn is the connected socket of one address, with a thread of its own. It
// carries one flow at a time, and stays for a while after it: until then the
// sender may ask for the report again, and no opening can be used twice.
type conn struct {
	server   *Server
	from     netip.AddrPort
	fd       int
	rcvBuf   int
	greeter  greeter
	poll     [2]unix.PollFd
	in       *inbox
	out      *socket.Batch
	clock    clock
	data     proto.Data
	ack      proto.Ack
	nonce    handshake.Nonce // of the flow
	issued   time.Duration   // its cookie
	answer   handshake.Answer
	flow     Flow
	finished Finished
	receiver *proto.Receiver // nil once the flow has ended
	report   proto.Report    // of the flow that has ended
	heard    time.Duration
	idle     time.Duration // after it, the flow ends
	drops    uint32        // of the socket, and
	cpu      time.Duration // of the thread, before the flow
}

func newConn(s *Server, from, local netip.AddrPort) (c *conn, err error) {
	local = netip.AddrPortFrom(local.Addr().WithZone(from.Addr().Zone()), local.Port()) // IPv4 has none
	c = &conn{server: s, from: from}
	if c.fd, err = socket.Open(local.Addr()); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			unix.Close(c.fd)
		}
	}()
	if err := unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return nil, fmt.Errorf("sharing the port: %w", err)
	}
	if local.Addr().Is4In6() {
		if err := unix.SetsockoptInt(c.fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0); err != nil {
			return nil, fmt.Errorf("asking for IPv4: %w", err)
		}
	}
	if c.rcvBuf, err = given(socket.SetReceiveBuffer(c.fd, s.config.Receiver.RcvBuf)); err != nil {
		return nil, fmt.Errorf("asking for rcvbuf %d: %w", s.config.Receiver.RcvBuf, err)
	}
	if err := unix.Bind(c.fd, socket.Sockaddr(local)); err != nil {
		return nil, fmt.Errorf("binding to %v: %w", local, err)
	}
	if err := unix.Connect(c.fd, socket.Sockaddr(from)); err != nil {
		return nil, fmt.Errorf("connecting to %v: %w", from, err)
	}
	c.poll[0] = unix.PollFd{Fd: int32(c.fd), Events: unix.POLLIN}
	c.poll[1] = unix.PollFd{Fd: int32(s.stop), Events: unix.POLLIN}
	c.greeter = greeter{server: s, from: from, reply: func(b []byte) { unix.SendmsgN(c.fd, b, nil, nil, unix.MSG_DONTWAIT) }}
	return c, nil
}

// open begins a flow.
func (c *conn) open(o *handshake.Open) error {
	sender, err := parseSender(o.Text)
	if err != nil {
		return err
	}
	var mode Mode
	if o.Bulk {
		mode = Bulk
	}
	if c.in, err = newInbox(c.fd, &c.clock, dataMessages, max(sender.MSS, handshake.MaxBytes)+1, o.Bulk); err != nil {
		return fmt.Errorf("asking for times of arrival: %w", err)
	}
	c.out = newOutbox(c.fd, proto.MaxAckBytes, mode)
	var tag [4]byte
	rand.Read(tag[:])
	c.flow = Flow{
		ID: proto.ID{Flow: c.server.number(), Tag: binary.BigEndian.Uint32(tag[:])}, From: c.from, Mode: mode, Sender: sender, RcvBuf: c.rcvBuf,
	}
	c.clock.start = time.Now()
	c.finished = Finished{Flow: c.flow, Opened: c.clock.start}
	c.nonce, c.issued, c.heard = o.Nonce, o.Cookie.Issued(), 0
	c.idle = max(c.server.config.Idle, 4*(sender.Timeout+sender.Tick)) // more than a sender waits for ACKs, here too
	c.receiver = proto.NewReceiver(c.server.config.Receiver, sender.RcvrWin)
	text, _ := c.server.config.Receiver.AppendText(nil)
	c.answer = handshake.Answer{Nonce: o.Nonce, ID: c.flow.ID, Text: string(text)}
	if c.server.config.Opened != nil {
		c.server.config.Opened(c.flow)
	}
	c.greeter.answer(&c.answer)
	return nil
}

// end ends the flow, if there is one.
func (c *conn) end(how string, fin *proto.Fin, failure error) {
	if c.receiver == nil {
		return
	}
	c.report = proto.Report{ID: c.flow.ID, ReceiverStats: c.receiver.Stats()}
	c.receiver = nil
	f := &c.finished
	f.End, f.Fin, f.Elapsed, f.Report = how, fin, c.heard, c.report.ReceiverStats
	drops, cpu := max(c.drops, c.in.drops), socket.ThreadCPU()
	f.Drops, f.CPU, f.GRO = uint64(drops-c.drops), cpu-c.cpu, c.in.trains
	c.drops, c.cpu = drops, cpu
	if failure != nil {
		f.Failure = failure.Error()
	}
	if c.server.config.Finished != nil {
		c.server.config.Finished(*f)
	}
}

func (c *conn) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer socket.ExactTimers()()
	defer unix.Close(c.fd)
	c.cpu = socket.ThreadCPU()
	how, err := c.serve()
	c.end(how, nil, err)
}

// serve runs flows until there is none for a while, and tells how the last ended.
func (c *conn) serve() (how string, err error) {
	for !c.server.ended.Load() {
		ready, err := c.in.fill()
		if err != nil && !soft(err) {
			return EndFailed, err
		}
		for b, at, ok := c.in.next(); ok; b, at, ok = c.in.next() {
			c.take(b, at)
		}
		c.flush()
		now := c.clock.now()
		until := c.heard + c.idle
		if c.receiver == nil {
			until = c.heard + handshake.CookieLife
		} else if due, ok := c.receiver.Deadline(); ok {
			if now >= due {
				c.acknowledge()
				c.flush()
				continue
			}
			until = min(until, due)
		}
		if now >= c.heard+c.idle || c.receiver == nil && now >= until {
			return EndIdle, nil
		}
		if ready {
			continue
		}
		ts := unix.NsecToTimespec(int64(until - now))
		if _, err := unix.Ppoll(c.poll[:], &ts, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return EndFailed, err
		}
	}
	return EndStopped, nil
}

// take takes a datagram.
func (c *conn) take(b []byte, at time.Duration) {
	kind, id, err := proto.Peek(b)
	switch {
	case err != nil:
	case kind == proto.TypeData && id == c.flow.ID && c.receiver != nil:
		if c.data.Decode(b) == nil && c.data.Bytes == len(b) && len(b) == c.flow.Sender.MSS {
			c.heard = at
			if c.receiver.Data(at, &c.data) {
				c.acknowledge()
			}
			return
		}
	case kind == proto.TypeFin && id == c.flow.ID:
		var fin proto.Fin
		if fin.Decode(b) == nil {
			c.heard = at
			c.flush()
			c.end(EndFin, &fin, nil)
			c.greeter.reply(c.report.Append(nil))
			return
		}
	case kind == proto.TypeHello || kind == proto.TypeOpen:
		c.greet(b)
		return
	}
	c.finished.Foreign++
}

// greet answers greetings that come to this socket because the address has, or
// had, a flow: the opening of that flow once more, or another flow's.
func (c *conn) greet(b []byte) {
	open := c.greeter.greet(b, c.issued-1)
	switch {
	case open == nil:
	case open.Nonce == c.nonce:
		c.greeter.answer(&c.answer)
	case open.Cookie.Issued() > c.issued:
		c.end(EndReplaced, nil, nil)
		if err := c.open(open); err != nil {
			c.greeter.refuse(open, "%v", err)
		}
	}
}

// acknowledge sends an ACK, or puts it into the train.
func (c *conn) acknowledge() {
	c.receiver.Ack(&c.ack)
	if c.out.Full() {
		c.flush()
	}
	n := c.ack.Encode(c.out.Place())
	if !c.out.Add(n) { // longer than those before
		var b [proto.MaxAckBytes]byte
		copy(b[:], c.out.Place()[:n])
		c.flush()
		copy(c.out.Place(), b[:n])
		c.out.Add(n)
	}
	if c.out.Full() {
		c.flush()
	}
}

// flush sends the ACKs. One that the host refuses is lost, as on any path.
func (c *conn) flush() {
	for attempts := 0; c.out.Len() > 0; attempts++ {
		if err := c.out.Send(); err != nil && err != unix.EINTR && (!soft(err) || attempts > 0) {
			c.finished.Unsent += uint64(c.out.Drop())
		}
	}
}
