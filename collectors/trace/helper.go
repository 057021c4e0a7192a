package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tracefs is root's alone, and the agent is not root. A helper that is begins a
// trace for it, hands over open files that can only be read, and ends the trace
// when the agent, however it ends, has closed the connection: nothing is left
// behind, and no permission of tracefs is changed. One message goes each way,
// and then the files.

const (
	helperTimeout = 20 * time.Second // it is started on demand
	messageBytes  = 1 << 20
	filesAtOnce   = 128 // the kernel passes 253
)

// request is what a helper is asked for. Ports are all that it takes from one
// who may not trace.
type request struct {
	Ports []uint16 `json:"ports"`
}

type answer struct {
	Unavailable string      `json:"unavailable,omitempty"`
	Events      []described `json:"events"`
	Pages       int         `json:"pages"`
}

// ask has a helper begin a trace.
func ask(socket string, ports []uint16) (*tracing, error) {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("%w: asking for it: %w", ErrUnavailable, err)
	}
	t, err := askBy(conn, ports)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return t, nil
}

func askBy(conn *net.UnixConn, ports []uint16) (t *tracing, err error) {
	if err := conn.SetDeadline(time.Now().Add(helperTimeout)); err != nil {
		return nil, err
	}
	if err := send(conn, request{ports}); err != nil {
		return nil, fmt.Errorf("%w: asking for it: %w", ErrUnavailable, err)
	}
	var got answer
	if err := receive(conn, &got); err != nil {
		return nil, fmt.Errorf("%w: its helper does not answer: %w", ErrUnavailable, err)
	}
	if got.Unavailable != "" {
		return nil, fmt.Errorf("%w: %s", ErrUnavailable, got.Unavailable)
	}
	t = &tracing{events: got.Events, by: conn}
	for len(t.pages) < got.Pages {
		pages, err := receivePages(conn)
		t.pages = append(t.pages, pages...)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%w: its helper's files: %w", ErrUnavailable, err), closePages(t.pages))
		}
	}
	return t, conn.SetDeadline(time.Time{})
}

// Serve begins a trace for the process at the other end of a connection of
// packets, and ends it when that has gone.
func Serve(conn *net.UnixConn) (err error) {
	var asked request
	if err := receive(conn, &asked); err != nil {
		return fmt.Errorf("reading what to trace: %w", err)
	}
	slices.Sort(asked.Ports)
	t, err := begin(slices.Compact(asked.Ports))
	if err != nil {
		reason := strings.TrimPrefix(err.Error(), ErrUnavailable.Error()+": ")
		return errors.Join(err, send(conn, answer{Unavailable: reason}))
	}
	defer func() { err = errors.Join(err, t.by.Close()) }()
	err = errors.Join(t.handOver(conn), closePages(t.pages))
	if err != nil {
		return err
	}
	if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
		return fmt.Errorf("waiting for the end of a trace: %w", err)
	}
	return nil
}

func (t *tracing) handOver(conn *net.UnixConn) error {
	if err := send(conn, answer{Events: t.events, Pages: len(t.pages)}); err != nil {
		return err
	}
	for pages := range slices.Chunk(t.pages, filesAtOnce) {
		if _, _, err := conn.WriteMsgUnix([]byte{0}, unix.UnixRights(pages...), nil); err != nil {
			return fmt.Errorf("handing over a trace: %w", err)
		}
	}
	return nil
}

func receivePages(conn *net.UnixConn) (pages []int, err error) {
	rights := make([]byte, unix.CmsgSpace(4*filesAtOnce))
	_, length, _, _, err := conn.ReadMsgUnix(make([]byte, 1), rights)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:length])
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return pages, err
		}
		pages = append(pages, fds...)
	}
	if len(pages) == 0 {
		return nil, errors.New("a message without any")
	}
	return pages, nil
}

func send(conn *net.UnixConn, message any) error {
	b, err := json.Marshal(message)
	if err != nil {
		return err
	}
	_, err = conn.Write(b)
	return err
}

func receive(conn *net.UnixConn, message any) error {
	b := make([]byte, messageBytes)
	n, err := conn.Read(b)
	if err != nil {
		return err
	}
	return json.Unmarshal(b[:n], message)
}
