package qdisc

import (
	"encoding/binary"
	"math"
	"slices"

	"dumbbell/collectors/row"

	"github.com/mdlayher/netlink"
)

// A setting is what a qdisc or class was asked to be: a member of a structure
// of include/uapi/linux/pkt_sched.h among the options that the kernel keeps.
type setting struct {
	name       string
	attributes []uint16 // in which it stands, from the outside; none: in the structure with which the options begin
	offset     int
	unit       unit
}

// A unit says how the kernel writes a setting.
type unit int

const (
	count       unit = iota // 32 bits
	wide                    // 64 bits
	rate                    // 32 bits of bytes per second, which are reported in bits
	wideRate                // 64 bits of them
	probability             // 32 bits, of which 1 is the largest
	complement              // of such a probability to 1
	flag                    // the lowest of 8 bits
	ticks                   // 32 bits of psched ticks of 64 ns, which are reported in ns
)

// settings are those that an emulated path is made of. Of two of one name the
// later counts, where the kernel has it: for what needs 64 bits.
var settings = map[string][]setting{
	"htb": { // of a class
		{"burst_ns", []uint16{1}, 24, ticks},
		{"rate_bps", []uint16{1}, 8, rate},
		{"rate_bps", []uint16{6}, 0, wideRate},
	},
	"netem": {
		{"limit_packets", nil, 4, count},
		{"loss", nil, 8, probability},
		{"duplicate", nil, 16, probability},
		{"reorder", []uint16{3}, 0, probability},
		{"corrupt", []uint16{4}, 0, probability},
		{"gemodel_p", []uint16{5, 2}, 0, probability},
		{"gemodel_r", []uint16{5, 2}, 4, probability},
		{"gemodel_loss_bad", []uint16{5, 2}, 8, complement},
		{"gemodel_loss_good", []uint16{5, 2}, 12, probability},
		{"rate_bps", []uint16{6}, 0, rate},
		{"rate_bps", []uint16{8}, 0, wideRate},
		{"delay_ns", []uint16{10}, 0, wide},
		{"jitter_ns", []uint16{11}, 0, wide},
		{"slot_min_ns", []uint16{12}, 0, wide},
		{"slot_max_ns", []uint16{12}, 8, wide},
	},
	"pfifo": {{"limit_packets", nil, 0, count}},
	"bfifo": {{"limit_bytes", nil, 0, count}},
	"codel": {
		{"target_us", []uint16{1}, 0, count},
		{"limit_packets", []uint16{2}, 0, count},
		{"interval_us", []uint16{3}, 0, count},
		{"ecn", []uint16{4}, 0, count},
	},
	"fq_codel": {
		{"target_us", []uint16{1}, 0, count},
		{"limit_packets", []uint16{2}, 0, count},
		{"interval_us", []uint16{3}, 0, count},
		{"ecn", []uint16{4}, 0, count},
	},
	"pie": {
		{"target_us", []uint16{1}, 0, count},
		{"limit_packets", []uint16{2}, 0, count},
		{"ecn", []uint16{6}, 0, count},
	},
	"red": {
		{"limit_bytes", []uint16{1}, 0, count},
		{"ecn", []uint16{1}, 15, flag},
	},
	"cake": {{"limit_bytes", []uint16{10}, 0, count}},
	"police": {
		{"burst_ns", []uint16{policeParameters}, 12, ticks},
		{"rate_bps", []uint16{policeParameters}, policeRate + 8, rate},
		{"rate_bps", []uint16{8}, 0, wideRate}, // TCA_POLICE_RATE64
	},
}

// Of include/uapi/linux/pkt_cls.h: struct tc_police is an attribute, with a
// struct tc_ratespec in it.
const (
	policeParameters = 1
	policeRate       = 20
)

// headers are lengths of the structures that stand before the attributes of
// the options, where there are both.
var headers = map[string]int{"netem": 24}

// addSettings writes what a qdisc or class was asked to be.
func addSettings(rows *row.Rows, kind string, options []byte) {
	written := ""
	for _, s := range slices.Backward(settings[kind]) {
		b := find(options, headers[kind], s.attributes)
		if size := sizes[s.unit]; s.name != written && len(b) >= s.offset+size {
			s.add(rows, b[s.offset:])
			written = s.name
		}
	}
}

// sizes of units in bytes.
var sizes = map[unit]int{count: 4, wide: 8, rate: 4, wideRate: 8, probability: 4, complement: 4, flag: 1, ticks: 4}

func (s *setting) add(rows *row.Rows, b []byte) {
	switch s.unit {
	case count:
		rows.Int(s.name, int64(binary.NativeEndian.Uint32(b)))
	case wide:
		rows.Int(s.name, int64(binary.NativeEndian.Uint64(b)))
	case rate:
		rows.Int(s.name, 8*int64(binary.NativeEndian.Uint32(b)))
	case wideRate:
		rows.Int(s.name, 8*int64(binary.NativeEndian.Uint64(b)))
	case probability:
		rows.Float(s.name, float64(binary.NativeEndian.Uint32(b))/math.MaxUint32)
	case complement:
		rows.Float(s.name, 1-float64(binary.NativeEndian.Uint32(b))/math.MaxUint32)
	case flag:
		rows.Int(s.name, int64(b[0]&1))
	case ticks:
		rows.Int(s.name, 64*int64(binary.NativeEndian.Uint32(b)))
	}
}

// find returns the content of an attribute within others, which begin after a
// header; nil if it is not there. Of no attribute it is all that there is.
func find(b []byte, header int, attributes []uint16) []byte {
	for _, wanted := range attributes {
		d, err := netlink.NewAttributeDecoder(b[min(header, len(b)):])
		if err != nil {
			return nil
		}
		b, header = nil, 0
		for b == nil && d.Next() {
			if d.Type() == wanted {
				b = d.Bytes()
			}
		}
	}
	return b
}
