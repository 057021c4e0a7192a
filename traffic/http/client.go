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
	"sync"
	"syscall"
	"time"

	"dumbbell/collectors/pace"
	"dumbbell/collectors/row"
	"dumbbell/collectors/tcpinfo"

	"golang.org/x/sys/unix"
)

// failurePause is the shortest pause after a fetch that failed: a server that
// is gone is not asked without end.
const failurePause = 100 * time.Millisecond

// A ClientConfig describes the end of a flow that fetches.
type ClientConfig struct {
	Config
	From       netip.Addr
	Count      int             // 0: as many as there is time for, or the transfers
	Think      time.Duration   // pause after each fetch
	Persistent bool            // one connection for all fetches, not one for each
	Report     func(Fetched)   // called for one after the other
	Started    func(time.Time) // called when the first fetch begins
}

// A Fetched is what became of a fetch. Times are from its begin.
type Fetched struct {
	Number        int // from 1
	Begin         time.Time
	Connect       time.Duration // until the connection was up; 0 if it was before
	FirstByte     time.Duration // 0 if none came
	Completion    time.Duration // 0 if not all came
	ReceivedBytes int64         // of the body
	Cut           time.Duration // until the end of the flow cut it; 0 if it did not
	Err           error
	Socket        *tcpinfo.Own // at the end; nil without a connection
	connected     bool         // it made the connection
}

// A ClientResult counts fetches. Each that has begun is done, failed or cut.
type ClientResult struct {
	Asked       int    `json:"asked"` // 0: as many as there was time for
	Begun       int    `json:"begun"`
	Done        int    `json:"done"`
	Failed      int    `json:"failed"`
	Cut         int    `json:"cut"`
	Connections int    `json:"connections"`
	Failure     string `json:"failure,omitempty"` // the first
}

// A Client is the end of a flow that fetches.
type Client struct {
	config ClientConfig
	dialer net.Dialer
	link   link // of fetches that follow each other

	mu     sync.Mutex
	result ClientResult
}

// A link is a connection for fetches.
type link struct {
	conn   *net.TCPConn // nil if there is none
	reader *bufio.Reader
}

// NewClient prepares a client. It connects when it runs.
func NewClient(config ClientConfig) (*Client, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	c := &Client{config: config, result: ClientResult{Asked: config.Count}}
	if config.Transfers != nil {
		c.result.Asked = len(config.Transfers)
	}
	c.dialer = net.Dialer{LocalAddr: &net.TCPAddr{IP: config.From.AsSlice()}, KeepAlive: -1, Control: c.prepare}
	return c, nil
}

// prepare lets the kernel choose the local port when it knows the remote one:
// a port is then free again as soon as its connection has ended here.
func (c *Client) prepare(_, _ string, raw syscall.RawConn) error {
	err := setOption(raw, "IP_BIND_ADDRESS_NO_PORT", func(fd int) error {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	})
	return errors.Join(err, c.config.setCongestionControl(raw))
}

// Close closes a connection that is left.
func (c *Client) Close() error { return c.hangUp(&c.link) }

// Run fetches from start, which carries Go's monotonic reading, until all
// fetches are done or the context ends, which cuts those under way. The error
// tells of fetches that failed; the result holds what was done even then.
func (c *Client) Run(ctx context.Context, start time.Time) (ClientResult, error) {
	if c.config.Transfers != nil {
		c.each(ctx, start)
	} else {
		c.inTurn(ctx, start)
	}
	r, err := c.result, c.hangUp(&c.link)
	if r.Failed > 0 {
		err = fmt.Errorf("%d of %d fetches failed, the first: %s", r.Failed, r.Begun, r.Failure)
	}
	return r, err
}

// inTurn fetches one after the other.
func (c *Client) inTurn(ctx context.Context, start time.Time) {
	next := start
	for n := 1; c.config.Count == 0 || n <= c.config.Count; n++ {
		if pace.SleepUntil(ctx, next) != nil {
			break
		}
		f := c.fetch(ctx, &c.link, n)
		pause := c.config.Think
		if f.Err != nil {
			pause = max(pause, failurePause)
		}
		next = time.Now().Add(pause)
	}
}

// each fetches every transfer at its time, over a connection of its own.
func (c *Client) each(ctx context.Context, start time.Time) {
	var all sync.WaitGroup
	for i, t := range c.config.Transfers {
		if pace.SleepUntil(ctx, start.Add(t.At)) != nil {
			break
		}
		all.Go(func() { c.fetch(ctx, new(link), i+1) })
	}
	all.Wait()
}

// fetch fetches once, reports it, and closes the connection unless it is to persist.
func (c *Client) fetch(ctx context.Context, l *link, number int) Fetched {
	f := Fetched{Number: number, Begin: time.Now()}
	if f.Number == 1 && c.config.Started != nil {
		c.config.Started(f.Begin)
	}
	f.Err = c.transfer(ctx, l, &f)
	if f.Err != nil && over(ctx) {
		f.Cut, f.Err = time.Since(f.Begin), nil
	}
	if l.conn != nil {
		var err error
		f.Socket, err = tcpinfo.ReadOwn(l.conn)
		f.Err = errors.Join(f.Err, err)
	}
	if !c.config.Persistent || f.Cut > 0 || f.Err != nil {
		f.Err = errors.Join(f.Err, c.hangUp(l))
	}
	c.count(f)
	return f
}

// count counts and reports a fetch.
func (c *Client) count(f Fetched) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &c.result
	r.Begun++
	if f.connected {
		r.Connections++
	}
	switch {
	case f.Cut > 0:
		r.Cut++
	case f.Err != nil:
		r.Failed++
		if r.Failed == 1 {
			r.Failure = f.Err.Error()
		}
	default:
		r.Done++
	}
	c.config.Report(f)
}

// over reports whether a context has ended, or does so at this moment: what
// waits for its deadline may learn of it first.
func over(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// transfer connects if need be, asks, and reads the answer.
func (c *Client) transfer(ctx context.Context, l *link, f *Fetched) error {
	bytes, _ := c.config.bytes(f.Number)
	if l.conn == nil {
		conn, err := c.dialer.DialContext(ctx, "tcp", c.config.Server.String())
		if err != nil {
			return err
		}
		f.Connect = time.Since(f.Begin)
		l.conn, f.connected = conn.(*net.TCPConn), true
		l.reader = bufio.NewReaderSize(l.conn, 64<<10)
		c.config.Sockets.Add(l.conn)
	}
	conn := l.conn
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	request, err := nethttp.NewRequest("GET", "http://"+c.config.Server.String()+c.config.Path+strconv.Itoa(f.Number), nil)
	if err != nil {
		return err
	}
	request.Close = !c.config.Persistent
	if err := request.Write(conn); err != nil {
		return fmt.Errorf("asking: %w", err)
	}
	if _, err := l.reader.Peek(1); err != nil {
		return fmt.Errorf("waiting for the answer: %w", err)
	}
	f.FirstByte = time.Since(f.Begin)
	response, err := nethttp.ReadResponse(l.reader, request)
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if response.StatusCode != nethttp.StatusOK || response.ContentLength != bytes {
		return fmt.Errorf("the answer is %s with %d bytes, not %d", response.Status, response.ContentLength, bytes)
	}
	f.ReceivedBytes, err = io.Copy(io.Discard, response.Body)
	if err != nil {
		return fmt.Errorf("after %d of %d bytes: %w", f.ReceivedBytes, bytes, err)
	}
	f.Completion = time.Since(f.Begin)
	return nil
}

func (c *Client) hangUp(l *link) error {
	if l.conn == nil {
		return nil
	}
	conn := l.conn
	l.conn = nil
	c.config.Sockets.Remove(conn)
	return conn.Close()
}

// Time is when the fetch began.
func (f Fetched) Time() time.Time { return f.Begin }

// AddFields adds the fetch to a row.
func (f Fetched) AddFields(rows *row.Rows) {
	rows.Int("fetch", int64(f.Number))
	addTime(rows, "connect_ns", f.Connect)
	addTime(rows, "first_byte_ns", f.FirstByte)
	addTime(rows, "completion_ns", f.Completion)
	addTime(rows, "cut_ns", f.Cut)
	rows.Int("received_bytes", f.ReceivedBytes)
	addEnd(rows, f.Socket, f.Err)
}

// addTime adds a time that there may not be.
func addTime(rows *row.Rows, name string, d time.Duration) {
	if d > 0 {
		rows.Int(name, d.Nanoseconds())
	}
}

func addEnd(rows *row.Rows, socket *tcpinfo.Own, err error) {
	if err != nil {
		rows.String("error", err.Error())
	}
	if socket != nil {
		socket.AddFields(rows)
	}
}
