package kernel

import (
	"errors"
	"slices"

	"github.com/mdlayher/netlink"
)

// dumpTries is how often a list is asked for that changes while it is told.
const dumpTries = 5

// Dump asks the kernel for a list. One that changed while the kernel told it
// (NLM_F_DUMP_INTR) may lack entries, or have some twice: it is asked for again.
func Dump(c *netlink.Conn, kind netlink.HeaderType, request []byte) ([]netlink.Message, error) {
	for range dumpTries {
		replies, err := c.Execute(netlink.Message{
			Header: netlink.Header{Type: kind, Flags: netlink.Request | netlink.Dump},
			Data:   request,
		})
		if err != nil || !slices.ContainsFunc(replies, interrupted) {
			return replies, err
		}
	}
	return nil, errors.New("the list changed each time that the kernel told it")
}

func interrupted(m netlink.Message) bool { return m.Header.Flags&netlink.DumpInterrupted != 0 }
