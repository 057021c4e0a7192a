package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"os"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// partLength is more than the kernel sends at once of a list.
const partLength = 64 << 10

// OpenNetlink opens and binds a netlink socket that is not of Go's poller.
func OpenNetlink(family int) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, family)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return -1, errors.Join(os.NewSyscallError("bind", err), unix.Close(fd))
	}
	return fd, nil
}

// Dial opens a connection for requests that the kernel answers before it
// returns from them, so that none has to be waited for. netlink.Dial is for all
// others: it starts a goroutine for each system call, and asks for the length
// of each answer before the answer.
func Dial(family int) (*netlink.Conn, error) {
	fd, err := OpenNetlink(family)
	if err != nil {
		return nil, err
	}
	return netlink.NewConn(&socket{fd: fd, part: make([]byte, partLength)}, 0), nil
}

// A socket implements netlink.Socket.
type socket struct {
	fd   int
	part []byte
}

func (s *socket) Close() error { return unix.Close(s.fd) }

func (s *socket) Send(m netlink.Message) error { return s.SendMessages([]netlink.Message{m}) }

func (s *socket) SendMessages(messages []netlink.Message) error {
	var request []byte
	for _, m := range messages {
		b, err := m.MarshalBinary()
		if err != nil {
			return err
		}
		request = append(request, b...)
	}
	_, err := unix.Write(s.fd, request)
	return os.NewSyscallError("write", err)
}

// Receive returns what the kernel sends at once.
func (s *socket) Receive() ([]netlink.Message, error) {
	n, _, flags, _, err := unix.Recvmsg(s.fd, s.part, nil, unix.MSG_DONTWAIT)
	switch {
	case err != nil:
		return nil, os.NewSyscallError("recvmsg", err)
	case flags&unix.MSG_TRUNC != 0:
		return nil, fmt.Errorf("the kernel sent more than %d bytes at once", len(s.part))
	}
	var messages []netlink.Message
	for b := bytes.Clone(s.part[:n]); len(b) > 0; {
		length := len(b) // of one that says nothing
		if length >= unix.NLMSG_HDRLEN {
			length = min(length, align(int(binary.NativeEndian.Uint32(b))))
		}
		var m netlink.Message
		if err := m.UnmarshalBinary(b[:length]); err != nil {
			return nil, fmt.Errorf("decoding what the kernel sent: %w", err)
		}
		messages, b = append(messages, m), b[length:]
	}
	return messages, nil
}

func (s *socket) ReceiveIter() iter.Seq2[netlink.Message, error] {
	return func(yield func(netlink.Message, error) bool) {
		messages, err := s.Receive()
		for _, m := range messages {
			if !yield(m, nil) {
				return
			}
		}
		if err != nil {
			yield(netlink.Message{}, err)
		}
	}
}

func align(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }
