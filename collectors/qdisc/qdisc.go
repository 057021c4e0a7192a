// Package qdisc reads the statistics of queueing disciplines, their classes and
// policers over rtnetlink, as "tc -s qdisc", "tc -s class" and "tc -s filter" do,
// and what those of an emulated path were asked to be.
package qdisc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"dumbbell/collectors/kernel"
	"dumbbell/collectors/row"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Numbers of include/uapi/linux/rtnetlink.h, pkt_sched.h and gen_stats.h.
const (
	netlinkRoute = 0
	getQdisc     = 38 // RTM_GETQDISC
	getClass     = 42 // RTM_GETTCLASS

	attrKind    = 1 // TCA_KIND
	attrOptions = 2 // TCA_OPTIONS
	attrStats2  = 7 // TCA_STATS2

	statsBasic     = 1 // TCA_STATS_BASIC: u64 bytes, u32 packets
	statsQueue     = 3 // TCA_STATS_QUEUE: u32 qlen, backlog, drops, requeues, overlimits
	statsKind      = 4 // TCA_STATS_APP: what its kind adds
	statsPackets64 = 8 // TCA_STATS_PKT64

	messageLength = 20 // struct tcmsg

	handleRoot = 0xffffffff
)

// Stats are the counters of one qdisc or class. All but QueueLength and
// Backlog only grow.
// A policer counts in Bytes and Packets all that came, also what it dropped.
type Stats struct {
	Device         string
	Kind           string
	Handle, Parent string // as tc writes them: "1:", "root", "1:10"
	Class          bool

	QueueLength uint32 // packets now queued
	Backlog     uint32 // bytes now queued
	Bytes       uint64
	Packets     uint64
	Drops       uint32
	Overlimits  uint32
	Requeues    uint32

	kind    []byte // what its kind adds
	options []byte // what it was asked to be
}

// AddFields writes the counters, and then the settings, to a row.
func (s *Stats) AddFields(rows *row.Rows) {
	rows.Int("backlog_bytes", int64(s.Backlog))
	rows.Int("qlen_packets", int64(s.QueueLength))
	rows.Int("bytes", int64(s.Bytes))
	rows.Int("packets", int64(s.Packets))
	rows.Int("drops", int64(s.Drops))
	rows.Int("overlimits", int64(s.Overlimits))
	rows.Int("requeues", int64(s.Requeues))
	addSettings(rows, s.Kind, s.options)
	if s.Kind == "fq_codel" && len(s.kind) >= 4 && binary.NativeEndian.Uint32(s.kind) != 0 {
		return // TCA_FQ_CODEL_XSTATS_CLASS: of one flow
	}
	for i := range extras[s.Kind] {
		e := &extras[s.Kind][i]
		if v, ok := e.value(s.kind); ok {
			rows.Int(e.name, v)
		}
	}
}

// A Conn is a netlink socket in the network namespace where it was opened.
// It is not safe for concurrent use.
type Conn struct {
	netlink  *netlink.Conn
	devices  kernel.Devices
	stats    []Stats
	classful []uint32  // devices with classes
	hooked   []uint32  // devices with an egress hook
	policed  []uint32  // of these, those with a policer
	looked   time.Time // for policers
}

// Dial opens a connection to the kernel.
func Dial() (*Conn, error) {
	c, err := kernel.Dial(netlinkRoute)
	if err != nil {
		return nil, fmt.Errorf("opening an rtnetlink socket: %w", err)
	}
	return &Conn{netlink: c, devices: make(kernel.Devices)}, nil
}

// Close releases the connection.
func (c *Conn) Close() error { return c.netlink.Close() }

// List returns all qdiscs that hold packets of their own, the classes of those
// of kind htb, hfsc, drr and ets, and policers of egress hooks, of which a new
// one is found within a second. Left out are "noqueue", "ingress" and
// "clsact", which have no queue, and the unnamed leaves that mq makes for each
// transmit queue of a device: mq's row is their sum. The result is valid until
// the next call.
func (c *Conn) List() ([]Stats, error) {
	c.stats, c.classful, c.hooked = c.stats[:0], c.classful[:0], c.hooked[:0]
	if err := c.dump(getQdisc, 0); err != nil {
		return nil, fmt.Errorf("listing qdiscs: %w", err)
	}
	for _, device := range c.classful {
		if err := c.dump(getClass, device); err != nil && !errors.Is(err, unix.ENODEV) {
			return nil, fmt.Errorf("listing classes: %w", err)
		}
	}
	if err := c.listPolicers(); err != nil {
		return nil, fmt.Errorf("listing policers: %w", err)
	}
	return c.stats, nil
}

// dump appends the answer to a request for all qdiscs, or for the classes of a device.
func (c *Conn) dump(kind netlink.HeaderType, device uint32) error {
	request := make([]byte, messageLength)
	binary.NativeEndian.PutUint32(request[4:], device)
	replies, err := kernel.Dump(c.netlink, kind, request)
	if err != nil {
		return err
	}
	for _, reply := range replies {
		var ok bool
		q, err := decode(reply.Data)
		if err != nil {
			return err
		}
		q.Class = kind == getClass
		if q.Kind == "clsact" {
			c.hooked = append(c.hooked, q.device)
		}
		switch classful := slices.Contains(withClasses, q.Kind); {
		case q.Kind == "noqueue", q.Kind == "ingress", q.Kind == "clsact":
			continue
		case q.Class && !classful:
			continue
		case q.Class:
			q.Handle = parentName(q.handle)
		case q.handle == 0 && q.parent != handleRoot:
			continue
		case classful && !slices.Contains(c.classful, q.device):
			c.classful = append(c.classful, q.device)
		}
		if q.Device, ok = c.devices.Name(q.device); !ok {
			continue // the device has gone since the kernel answered
		}
		c.stats = append(c.stats, q.Stats)
	}
	return nil
}

// withClasses are the kinds whose classes count what qdiscs do not.
var withClasses = []string{"htb", "hfsc", "drr", "ets"}

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
		case attrOptions:
			m.options = attributes.Bytes()
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
		case statsKind:
			m.kind = b
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

// A Source samples all qdiscs and classes.
type Source struct {
	conn   *Conn
	tags   row.Tags
	series map[name]row.Series
}

// A name is what tells a qdisc or class from others.
type name struct {
	device, kind, handle, parent string
	class                        bool
}

// NewSource opens a connection to the kernel.
func NewSource(tags row.Tags) (*Source, error) {
	conn, err := Dial()
	if err != nil {
		return nil, err
	}
	return &Source{conn: conn, tags: tags, series: make(map[name]row.Series)}, nil
}

// Sample writes a row for each qdisc and class.
func (s *Source) Sample(rows *row.Rows) error {
	list, err := s.conn.List()
	now := time.Now()
	for i := range list {
		q := &list[i]
		rows.Begin(s.find(q))
		q.AddFields(rows)
		rows.End(now)
	}
	return err
}

func (s *Source) find(q *Stats) row.Series {
	key := name{q.Device, q.Kind, q.Handle, q.Parent, q.Class}
	series, ok := s.series[key]
	if !ok {
		measurement := "qdisc"
		if q.Class {
			measurement = "tc_class"
		}
		series = row.NewSeries(measurement, s.tags.With("dev", q.Device, "kind", q.Kind, "handle", q.Handle, "parent", q.Parent))
		s.series[key] = series
	}
	return series
}

// Close releases the connection.
func (s *Source) Close() error { return s.conn.Close() }
