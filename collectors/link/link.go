// Package link reads the counters of network interfaces over rtnetlink: only
// those, which costs a tenth of what a list of interfaces does.
package link

import (
	"encoding/binary"
	"fmt"
	"time"

	"dumbbell/collectors/kernel"
	"dumbbell/collectors/row"

	"github.com/mdlayher/netlink"
)

// Numbers of include/uapi/linux/rtnetlink.h and if_link.h.
const (
	netlinkRoute = 0
	getStats     = 94 // RTM_GETSTATS

	messageLength = 12 // struct if_stats_msg
	attrLink64    = 1  // IFLA_STATS_LINK_64
)

// names are the members of struct rtnl_link_stats64.
var names = [...]string{
	"rx_packets", "tx_packets", "rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped", "multicast", "collisions",
	"rx_length_errors", "rx_over_errors", "rx_crc_errors", "rx_frame_errors", "rx_fifo_errors", "rx_missed_errors",
	"tx_aborted_errors", "tx_carrier_errors", "tx_fifo_errors", "tx_heartbeat_errors", "tx_window_errors",
	"rx_compressed", "tx_compressed", "rx_nohandler", "rx_otherhost_dropped",
}

// A Source samples all interfaces of this network namespace.
type Source struct {
	netlink *netlink.Conn
	tags    row.Tags
	devices kernel.Devices
	series  map[uint32]row.Series
}

// NewSource opens a connection to the kernel.
func NewSource(tags row.Tags) (*Source, error) {
	c, err := kernel.Dial(netlinkRoute)
	if err != nil {
		return nil, fmt.Errorf("opening an rtnetlink socket: %w", err)
	}
	return &Source{netlink: c, tags: tags, devices: make(kernel.Devices), series: make(map[uint32]row.Series)}, nil
}

// Close releases the connection.
func (s *Source) Close() error { return s.netlink.Close() }

// Sample writes a row for each interface. Its counters only grow.
func (s *Source) Sample(rows *row.Rows) error {
	request := make([]byte, messageLength)
	binary.NativeEndian.PutUint32(request[8:], 1<<(attrLink64-1))
	replies, err := kernel.Dump(s.netlink, getStats, request)
	now := time.Now()
	if err != nil {
		return fmt.Errorf("reading counters of interfaces: %w", err)
	}
	for _, reply := range replies {
		if len(reply.Data) < messageLength {
			return fmt.Errorf("counters of an interface: if_stats_msg has %d bytes, not %d", len(reply.Data), messageLength)
		}
		index := binary.NativeEndian.Uint32(reply.Data[4:])
		if _, ok := s.series[index]; !ok {
			name, ok := s.devices.Name(index)
			if !ok {
				continue // it has gone since the kernel answered
			}
			s.series[index] = row.NewSeries("link", s.tags.With("dev", name))
		}
		attributes, err := netlink.NewAttributeDecoder(reply.Data[messageLength:])
		if err != nil {
			return fmt.Errorf("counters of an interface: %w", err)
		}
		for attributes.Next() {
			if attributes.Type() == attrLink64 {
				b := attributes.Bytes()
				rows.Begin(s.series[index])
				for i, name := range names {
					if 8*i+8 <= len(b) {
						rows.Int(name, int64(binary.NativeEndian.Uint64(b[8*i:])))
					}
				}
				rows.End(now)
			}
		}
		if err := attributes.Err(); err != nil {
			return fmt.Errorf("counters of an interface: %w", err)
		}
	}
	return nil
}
