package qdisc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"dumbbell/collectors/kernel"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Numbers of include/uapi/linux/rtnetlink.h and pkt_cls.h.
const (
	getFilter = 46 // RTM_GETTFILTER

	egressHook = 0xfffffff3 // TC_H_CLSACT and TC_H_MIN_EGRESS

	matchallActions = 2 // TCA_MATCHALL_ACT

	actionKind    = 1 // TCA_ACT_KIND
	actionOptions = 2 // TCA_ACT_OPTIONS
	actionStats   = 4 // TCA_ACT_STATS, with the attributes of TCA_STATS2
)

// lookEach is how often devices without a policer are asked for one.
const lookEach = time.Second

// listPolicers appends the policers of egress hooks.
func (c *Conn) listPolicers() error {
	asked := c.policed
	if look := time.Since(c.looked) >= lookEach; look {
		asked, c.looked = c.hooked, time.Now()
	}
	var policed []uint32
	for _, device := range asked {
		if !slices.Contains(c.hooked, device) {
			continue
		}
		before := len(c.stats)
		if err := c.policersOf(device); err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EINVAL) {
			return err
		}
		if len(c.stats) > before {
			policed = append(policed, device)
		}
	}
	c.policed = policed
	return nil
}

func (c *Conn) policersOf(device uint32) error {
	request := make([]byte, messageLength)
	binary.NativeEndian.PutUint32(request[4:], device)
	binary.NativeEndian.PutUint32(request[12:], egressHook)
	replies, err := kernel.Dump(c.netlink, getFilter, request)
	if err != nil {
		return err
	}
	name, ok := c.devices.Name(device)
	if !ok {
		return nil // the device has gone since the kernel answered
	}
	for _, reply := range replies {
		policers, err := decodePolicers(reply.Data)
		if err != nil {
			return err
		}
		for _, p := range policers {
			p.Device = name
			c.stats = append(c.stats, p)
		}
	}
	return nil
}

// decodePolicers returns the policers among the actions of a filter that
// matches all packets. Parent is the hook, Handle the policer's index.
func decodePolicers(b []byte) (found []Stats, err error) {
	if len(b) < messageLength {
		return nil, fmt.Errorf("tcmsg has %d bytes, not %d", len(b), messageLength)
	}
	attributes, err := netlink.NewAttributeDecoder(b[messageLength:])
	if err != nil {
		return nil, fmt.Errorf("attributes of a filter: %w", err)
	}
	action := func(d *netlink.AttributeDecoder) error {
		p, ok, err := decodeAction(d)
		if ok {
			found = append(found, p)
		}
		return err
	}
	actions := func(d *netlink.AttributeDecoder) error {
		for d.Next() {
			d.Nested(action)
		}
		return d.Err()
	}
	options := func(d *netlink.AttributeDecoder) error {
		for d.Next() {
			if d.Type() == matchallActions {
				d.Nested(actions)
			}
		}
		return d.Err()
	}
	kind := ""
	for attributes.Next() {
		switch {
		case attributes.Type() == attrKind:
			kind = attributes.String()
		case attributes.Type() == attrOptions && kind == "matchall":
			attributes.Nested(options)
		}
	}
	if err := attributes.Err(); err != nil {
		return nil, fmt.Errorf("attributes of a filter: %w", err)
	}
	return found, nil
}

// decodeAction reads an action, and whether it is a policer.
func decodeAction(action *netlink.AttributeDecoder) (s Stats, ok bool, err error) {
	m := message{Stats: Stats{Kind: "police", Parent: "egress"}}
	for action.Next() {
		switch action.Type() {
		case actionKind:
			ok = action.String() == m.Kind
		case actionOptions:
			m.options = action.Bytes()
			if b := find(m.options, 0, []uint16{policeParameters}); len(b) >= 4 {
				m.Handle = fmt.Sprint(binary.NativeEndian.Uint32(b))
			}
		case actionStats:
			action.Nested(m.decodeStats)
		}
	}
	return m.Stats, ok, action.Err()
}
