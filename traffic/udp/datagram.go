// Package udp sends and receives a flow of UDP datagrams at a scheduled rate
// and counts exactly what became of them.
//
// A datagram begins with a header of 32 bytes, big endian; the rest is zeros:
//
//	 0  magic "dbl1"
//	 4  kind: 0 data, 1 end
//	 8  token of the flow
//	16  sequence number, from 0; in an end marker, the number of datagrams sent
//	24  CLOCK_REALTIME of the sender at its departure, in ns
//
// The sender follows absolute times. It wakes at most every half millisecond
// and sends what is due as one batch, back to back (UDP GSO and sendmmsg where
// the kernel has them). A batch covers at most a millisecond of the schedule
// or, on a host that wakes late, twice the time since the batch before, and
// never more than 20 ms: a sender that was held up catches up at no more than
// about twice the rate, and does not burst all it owes into a queue. What is
// late by more than 100 ms is skipped and counted.
//
// The receiver takes one token, answers nobody, and counts in bounded memory.
package udp

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
)

// HeaderBytes is the least payload of a datagram.
const HeaderBytes = 32

const magic = 0x64626c31 // "dbl1"

type kind uint32

const (
	kindData kind = iota
	kindEnd
)

type header struct {
	kind     kind
	token    uint64
	sequence uint64
	unixNs   int64
}

func (h header) encode(b []byte) {
	binary.BigEndian.PutUint32(b, magic)
	binary.BigEndian.PutUint32(b[4:], uint32(h.kind))
	binary.BigEndian.PutUint64(b[8:], h.token)
	binary.BigEndian.PutUint64(b[16:], h.sequence)
	binary.BigEndian.PutUint64(b[24:], uint64(h.unixNs))
}

var errForeign = errors.New("not a datagram of this generator")

func decode(b []byte) (header, error) {
	if len(b) < HeaderBytes || binary.BigEndian.Uint32(b) != magic {
		return header{}, errForeign
	}
	h := header{
		kind:     kind(binary.BigEndian.Uint32(b[4:])),
		token:    binary.BigEndian.Uint64(b[8:]),
		sequence: binary.BigEndian.Uint64(b[16:]),
		unixNs:   int64(binary.BigEndian.Uint64(b[24:])),
	}
	if h.kind > kindEnd {
		return header{}, errForeign
	}
	return h, nil
}

// Token makes the token of a flow from what both ends know of it.
func Token(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64()
}
