package kernel

import (
	"errors"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// linkRequest is struct ifinfomsg of all interfaces.
var linkRequest = make([]byte, unix.SizeofIfInfomsg)

// TestDial: a list has what netlink.Dial's connection is told.
func TestDial(t *testing.T) {
	ours, err := Dial(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	theirs, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	for range 2 { // the first leaves nothing behind
		got, err := Dump(ours, unix.RTM_GETLINK, linkRequest)
		if err != nil {
			t.Fatal(err)
		}
		want, err := Dump(theirs, unix.RTM_GETLINK, linkRequest)
		if err != nil || len(got) != len(want) || len(got) == 0 {
			t.Fatalf("%d links, not %d: %v", len(got), len(want), err)
		}
		for i, m := range got {
			if m.Header.Type != want[i].Header.Type || len(m.Data) != len(want[i].Data) {
				t.Errorf("message %d: %+v with %d bytes, not %+v with %d", i, m.Header, len(m.Data), want[i].Header, len(want[i].Data))
			}
		}
	}
}

// TestDialRefused: an error of the kernel is returned, and the connection goes on.
func TestDialRefused(t *testing.T) {
	c, err := Dial(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	absent := make([]byte, unix.SizeofIfInfomsg)
	absent[4], absent[5], absent[6], absent[7] = 0xff, 0xff, 0xff, 0x7f // an index that no interface has
	_, err = c.Execute(netlink.Message{Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request}, Data: absent})
	if !errors.Is(err, unix.ENODEV) {
		t.Errorf("error %v", err)
	}
	if links, err := Dump(c, unix.RTM_GETLINK, linkRequest); err != nil || len(links) == 0 {
		t.Errorf("%d links: %v", len(links), err)
	}
}

// TestNoReply: nothing is waited for.
func TestNoReply(t *testing.T) {
	c, err := Dial(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Receive(); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("error %v", err)
	}
}
