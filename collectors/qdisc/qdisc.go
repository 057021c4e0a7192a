// Package qdisc reads the statistics of queueing disciplines over rtnetlink,
// as "tc -s qdisc" does.
package qdisc

import (
	"encoding/binary"
	"fmt"
	"net"

	"github.com/influxdata/line-protocol/v2/lineprotocol"
	"github.com/mdlayher/netlink"
)

// Numbers of include/uapi/linux/rtnetlink.h, pkt_sched.h and gen_stats.h.
const (
	netlinkRoute = 0
	getQdisc     = 38 // RTM_GETQDISC

	attrKind   = 1 // TCA_KIND
	attrStats2 = 7 // TCA_STATS2

	statsBasic     = 1 // TCA_STATS_BASIC: u64 bytes, u32 packets
	statsQueue     = 3 // TCA_STATS_QUEUE: u32 qlen, backlog, drops, requeues, overlimits
	statsPackets64 = 8 // TCA_STATS_PKT64

	messageLength = 20 // struct tcmsg

	handleRoot = 0xffffffff
)

// Stats are the counters of one qdisc. All but QueueLength and Backlog only
// grow.
type Stats struct {
	Device         string
	Kind           string
	Handle, Parent string // as tc writes them: "1:", "root", "1:10"

	QueueLength uint32 // packets now queued
	Backlog     uint32 // bytes now queued
	Bytes       uint64
	Packets     uint64
	Drops       uint32
	Overlimits  uint32
	Requeues    uint32
}

// AddFields writes the counters to a line that already has its measurement
// and tags.
func (s *Stats) AddFields(line *lineprotocol.Encoder) {
	line.AddField("backlog_bytes", lineprotocol.IntValue(int64(s.Backlog)))
	line.AddField("qlen_packets", lineprotocol.IntValue(int64(s.QueueLength)))
	line.AddField("bytes", lineprotocol.IntValue(int64(s.Bytes)))
	line.AddField("packets", lineprotocol.IntValue(int64(s.Packets)))
	line.AddField("drops", lineprotocol.IntValue(int64(s.Drops)))
	line.AddField("overlimits", lineprotocol.IntValue(int64(s.Overlimits)))
	line.AddField("requeues", lineprotocol.IntValue(int64(s.Requeues)))
}

// A Conn is a netlink socket in the network namespace where it was opened.
// It is not safe for concurrent use.
type Conn struct {
	netlink *netlink.Conn
	devices map[uint32]string
	stats   []Stats
}

// Dial opens a connection to the kernel.
func Dial() (*Conn, error) {
	c, err := netlink.Dial(netlinkRoute, nil)
	if err != nil {
		return nil, fmt.Errorf("opening an rtnetlink socket: %w", err)
	}
	return &Conn{netlink: c, devices: make(map[uint32]string)}, nil
}

// Close releases the connection.
func (c *Conn) Close() error { return c.netlink.Close() }

// List returns all qdiscs that hold packets of their own. Left out are
// "noqueue", "ingress" and "clsact", which have no queue, and the unnamed leaves
// that mq makes for each transmit queue of a device: mq's row is their sum. The
// result is valid until the next call.
func (c *Conn) List() ([]Stats, error) {
	replies, err := c.netlink.Execute(netlink.Message{
		Header: netlink.Header{Type: getQdisc, Flags: netlink.Request | netlink.Dump},
		Data:   make([]byte, messageLength),
	})
	if err != nil {
		return nil, fmt.Errorf("listing qdiscs: %w", err)
	}
	c.stats = c.stats[:0]
	for _, reply := range replies {
		q, err := decode(reply.Data)
		if err != nil {
			return nil, fmt.Errorf("listing qdiscs: %w", err)
		}
		switch {
		case q.Kind == "noqueue", q.Kind == "ingress", q.Kind == "clsact":
			continue
		case q.handle == 0 && q.parent != handleRoot:
			continue
		}
		q.Device, err = c.device(q.device)
		if err != nil {
			continue // the device has gone since the kernel answered
		}
		c.stats = append(c.stats, q.Stats)
	}
	return c.stats, nil
}

// device returns the name of an interface, remembered because a name costs a
// dump of all interfaces.
func (c *Conn) device(index uint32) (string, error) {
	if name, ok := c.devices[index]; ok {
		return name, nil
	}
	i, err := net.InterfaceByIndex(int(index))
	if err != nil {
		return "", err
	}
	c.devices[index] = i.Name
	return i.Name, nil
}

// message is a decoded RTM_NEWQDISC.
type message struct {
	device, handle, parent uint32
	Stats
}

func decode(b []byte) (message, error) {
	if len(b) < messageLength {
		return message{}, fmt.Errorf("tcmsg has %d bytes, not %d", len(b), messageLength)
	}
	m := message{
		device: binary.NativeEndian.Uint32(b[4:]),
		handle: binary.NativeEndian.Uint32(b[8:]),
		parent: binary.NativeEndian.Uint32(b[12:]),
	}
	m.Handle, m.Parent = handleName(m.handle), parentName(m.parent)
	attributes, err := netlink.NewAttributeDecoder(b[messageLength:])
	if err != nil {
		return m, fmt.Errorf("attributes of a qdisc: %w", err)
	}
	for attributes.Next() {
		switch attributes.Type() {
		case attrKind:
			m.Kind = attributes.String()
		case attrStats2:
			attributes.Nested(m.decodeStats)
		}
	}
	if err := attributes.Err(); err != nil {
		return m, fmt.Errorf("attributes of a qdisc: %w", err)
	}
	return m, nil
}

func (m *message) decodeStats(attributes *netlink.AttributeDecoder) error {
	var packets64 bool
	for attributes.Next() {
		b := attributes.Bytes()
		switch attributes.Type() {
		case statsBasic:
			if len(b) < 12 {
				return fmt.Errorf("basic statistics have %d bytes, not 12", len(b))
			}
			m.Bytes = binary.NativeEndian.Uint64(b)
			if !packets64 {
				m.Packets = uint64(binary.NativeEndian.Uint32(b[8:]))
			}
		case statsQueue:
			if len(b) < 20 {
				return fmt.Errorf("queue statistics have %d bytes, not 20", len(b))
			}
			m.QueueLength = binary.NativeEndian.Uint32(b)
			m.Backlog = binary.NativeEndian.Uint32(b[4:])
			m.Drops = binary.NativeEndian.Uint32(b[8:])
			m.Requeues = binary.NativeEndian.Uint32(b[12:])
			m.Overlimits = binary.NativeEndian.Uint32(b[16:])
		case statsPackets64: // sent only once the 32-bit count has overflowed
			if len(b) < 8 {
				return fmt.Errorf("packet statistics have %d bytes, not 8", len(b))
			}
			m.Packets, packets64 = binary.NativeEndian.Uint64(b), true
		}
	}
	return attributes.Err()
}

func handleName(h uint32) string { return fmt.Sprintf("%x:", h>>16) }

func parentName(h uint32) string {
	if h == handleRoot {
		return "root"
	}
	if h&0xffff == 0 {
		return handleName(h)
	}
	return fmt.Sprintf("%x:%x", h>>16, h&0xffff)
}
