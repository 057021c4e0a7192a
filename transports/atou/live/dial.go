package live

import (
	"context"
	"fmt"
	"strings"
	"time"

	"dumbbell/traffic/socket"
	"dumbbell/transports/atou/config"
	"dumbbell/transports/atou/handshake"
	"dumbbell/transports/atou/proto"

	"golang.org/x/sys/unix"
)

const (
	answerWait = 5 * time.Second        // for the answer to a greeting; to the end, at least
	resendWait = 100 * time.Millisecond // before it is sent again; then twice as long each time
	lookWait   = 100 * time.Millisecond // how often it is looked whether the context has ended
)

// A peer is the other end of an open flow.
type peer struct {
	fd       int
	id       proto.ID
	receiver config.Receiver
	sndBuf   int // bytes that the kernel gave
	rcvBuf   int
}

// dial opens a flow at a receiver. The caller closes fd.
func dial(ctx context.Context, c *SendConfig) (p peer, err error) {
	p.fd, err = socket.Open(c.To.Addr())
	if err != nil {
		return p, err
	}
	defer func() {
		if err != nil {
			unix.Close(p.fd)
		}
	}()
	if c.Bind.IsValid() {
		if err := unix.Bind(p.fd, socket.Sockaddr(c.Bind)); err != nil {
			return p, fmt.Errorf("binding to %v: %w", c.Bind, err)
		}
	}
	if err := unix.Connect(p.fd, socket.Sockaddr(c.To)); err != nil {
		return p, fmt.Errorf("connecting to %v: %w", c.To, err)
	}
	if p.sndBuf, err = given(socket.SetSendBuffer(p.fd, c.Sender.SndBuf)); err != nil {
		return p, fmt.Errorf("asking for sndbuf %d: %w", c.Sender.SndBuf, err)
	}
	if p.rcvBuf, err = given(socket.SetReceiveBuffer(p.fd, c.Sender.RcvBuf)); err != nil {
		return p, fmt.Errorf("asking for rcvbuf %d: %w", c.Sender.RcvBuf, err)
	}
	if err := socket.ReportErrors(p.fd, c.To.Addr()); err != nil {
		return p, err
	}

	nonce := handshake.NewNonce()
	var cookie handshake.Cookie
	err = exchange(ctx, p.fd, answerWait, c.Token.AppendHello(nil, nonce), func(b []byte) bool {
		cookie, err = c.Token.ReadChallenge(b, nonce)
		return err == nil
	})
	switch {
	case ctx.Err() != nil:
		return p, fmt.Errorf("interrupted before a flow was open at %v: %w", c.To, ctx.Err())
	case err != nil:
		return p, fmt.Errorf("asking the receiver at %v for a flow: %w. Is atou serve running there, with the same token, and does UDP pass?", c.To, err)
	}
	recorded := c.Sender
	recorded.DropList = nil // of any length, and no matter of the receiver's
	text, _ := recorded.AppendText(nil)
	open, err := c.Token.AppendOpen(nil, &handshake.Open{Nonce: nonce, Cookie: cookie, Bulk: c.Mode == Bulk, Text: string(text)})
	if err != nil {
		return p, err
	}
	var answer handshake.Answer
	err = exchange(ctx, p.fd, answerWait, open, func(b []byte) bool {
		answer, err = c.Token.ReadAnswer(b, nonce)
		return err == nil
	})
	switch {
	case err != nil:
		return p, fmt.Errorf("opening a flow at the receiver at %v, which had answered: %w", c.To, err)
	case answer.Refused:
		return p, fmt.Errorf("the receiver at %v refuses the flow: %s", c.To, answer.Text)
	}
	p.id = answer.ID
	p.receiver, err = config.ParseReceiver(strings.NewReader(answer.Text), "the receiver's configuration")
	return p, err
}

// given is what the kernel gave of a buffer: it counts twice as much.
func given(granted int, err error) (int, error) { return granted / 2, err }

// exchange sends a message until take has taken an answer, for so long.
func exchange(ctx context.Context, fd int, long time.Duration, message []byte, take func([]byte) bool) error {
	var (
		buffer   = make([]byte, 1<<16)
		deadline = time.Now().Add(long)
		wait     = resendWait
		resend   time.Time
		refused  error
	)
	note := func(err error) error {
		switch {
		case soft(err) || err == unix.EPERM:
			refused = err
		case err != nil && err != unix.EAGAIN && err != unix.EINTR && err != unix.ENOBUFS:
			return err
		}
		return nil
	}
	for now := time.Now(); now.Before(deadline); now = time.Now() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !now.Before(resend) {
			if _, err := unix.SendmsgN(fd, message, nil, nil, unix.MSG_DONTWAIT); note(err) != nil {
				return fmt.Errorf("sending: %w", err)
			}
			resend, wait = now.Add(wait), 2*wait
		}
		if err := await(fd, min(resend.Sub(now), deadline.Sub(now), lookWait)); note(err) != nil {
			return fmt.Errorf("waiting: %w", err)
		}
		for {
			n, _, err := unix.Recvfrom(fd, buffer, unix.MSG_DONTWAIT)
			if err != nil {
				if note(err) != nil {
					return fmt.Errorf("receiving: %w", err)
				}
				break
			}
			if take(buffer[:n]) {
				return nil
			}
		}
	}
	if refused != nil {
		return fmt.Errorf("no answer in %v (%w)", long, refused)
	}
	return fmt.Errorf("no answer in %v", long)
}

// await waits until a socket has something to read, or for a time. What ICMP
// told of the socket is an error.
func await(fd int, wait time.Duration) error {
	ts := unix.NsecToTimespec(max(0, wait).Nanoseconds())
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if _, err := unix.Ppoll(fds, &ts, nil); err != nil {
		return err
	}
	if fds[0].Revents&unix.POLLERR != 0 {
		return takeErrors(fd)
	}
	return nil
}

// takeErrors returns what ICMP told of a socket, and takes all of it: else the
// socket is always ready.
func takeErrors(fd int) error {
	number, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && number != 0 {
		err = unix.Errno(number)
	}
	var b [64]byte
	for {
		if _, _, _, _, e := unix.Recvmsg(fd, b[:], nil, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT); e != nil {
			return err
		}
	}
}
