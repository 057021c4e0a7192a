package kernel

import (
	"bytes"
	"testing"

	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
)

// TestDump: a list that changed while the kernel told it is asked for again,
// but not for ever.
func TestDump(t *testing.T) {
	for changes := range dumpTries + 1 {
		asked := 0
		c := nltest.Dial(func(requests []netlink.Message) ([]netlink.Message, error) {
			if len(requests) == 0 {
				return nil, nil
			}
			asked++
			h := requests[0].Header
			if h.Type != 94 || h.Flags&netlink.Dump != netlink.Dump || !bytes.Equal(requests[0].Data, []byte("what")) {
				t.Errorf("%+v", requests[0])
			}
			replies := []netlink.Message{{Header: h, Data: []byte("a")}, {Header: h, Data: []byte("b")}, {Header: h, Data: []byte("c")}}
			for i := range replies {
				replies[i].Header.Flags = 0
			}
			if asked <= changes {
				replies[1].Header.Flags = netlink.DumpInterrupted // the first after the change
				replies[2].Data = []byte("b")
			}
			return nltest.Multipart(append(replies, netlink.Message{Header: h, Data: make([]byte, 4)}))
		})
		replies, err := Dump(c, 94, []byte("what"))
		if changes == dumpTries {
			if err == nil || asked != dumpTries {
				t.Errorf("%d replies after %d requests", len(replies), asked)
			}
			continue
		}
		if err != nil || len(replies) != 3 || string(replies[2].Data) != "c" || asked != changes+1 {
			t.Errorf("%d changes: %v, %v after %d requests", changes, replies, err, asked)
		}
	}
}
