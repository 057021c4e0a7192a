package proto

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"dumbbell/transports/atou/config"
)

// A Type is what a datagram is.
type Type uint8

const (
	TypeData   Type = iota + 1
	TypeAck         // a receiver's acknowledgement
	TypeSyn         // a sender's greeting, with its configuration
	TypeSynAck      // a receiver's answer, with its own
	TypeFin         // a sender's end
	TypeReport      // a receiver's answer, with what it counted
)

const (
	magic   = 0x61746f01 // "ato", version 1
	flagRtx = 1 << 0
	flagEnd = 1 << 1

	ackBytes    = 52
	blockBytes  = 16
	finBytes    = 24
	reportBytes = 80
	helloBytes  = 8
)

// MaxBlocks is how many SACK blocks an ACK has room for.
const MaxBlocks = 3

// MaxAckBytes is the size of the largest ACK.
const MaxAckBytes = ackBytes + MaxBlocks*blockBytes

// MaxHelloText bounds the configuration in a greeting: it is not fragmented.
const MaxHelloText = 1400

// ErrForeign is a datagram of something else, or of another version.
var ErrForeign = errors.New("not a datagram of atou")

// Every datagram begins with these 8 bytes, big endian:
//
//	0  magic "ato" and version 1
//	4  type
//	5  flags: 1 retransmission, 2 last segment; both of data only
//	6  flow
func putPrefix(b []byte, t Type, flags uint8, flow uint16) {
	binary.BigEndian.PutUint32(b, magic)
	b[4], b[5] = byte(t), flags
	binary.BigEndian.PutUint16(b[6:], flow)
}

// Peek tells the type and the flow of a datagram.
func Peek(b []byte) (Type, uint16, error) {
	if len(b) < 8 || binary.BigEndian.Uint32(b) != magic {
		return 0, 0, ErrForeign
	}
	t := Type(b[4])
	if t < TypeData || t > TypeReport {
		return 0, 0, fmt.Errorf("type %d: %w", t, ErrForeign)
	}
	if b[5] != 0 && (t != TypeData || b[5] > flagRtx|flagEnd) {
		return 0, 0, fmt.Errorf("flags %#x of type %d: %w", b[5], t, ErrForeign)
	}
	return t, binary.BigEndian.Uint16(b[6:]), nil
}

// open reads the first bytes of a datagram of a type of at least so many bytes.
func open(b []byte, want Type, least int) (flow uint16, err error) {
	t, flow, err := Peek(b)
	switch {
	case err != nil:
		return 0, err
	case t != want:
		return 0, fmt.Errorf("type %d, not %d", t, want)
	case len(b) < least:
		return 0, fmt.Errorf("%d bytes of type %d, which has %d at least", len(b), t, least)
	}
	return flow, nil
}

func getTime(b []byte) (time.Duration, error) {
	ns := binary.BigEndian.Uint64(b)
	if ns > math.MaxInt64 {
		return 0, errors.New("a time beyond 2^63 ns")
	}
	return time.Duration(ns), nil
}

// Data is the header of a segment; the rest of the datagram is padding.
//
//	 8  segment, from 0
//	16  time of departure in ns of the sender's clock
//	24  bytes of the datagram
//	28  zero
type Data struct {
	Flow   uint16
	Seg    uint64
	Sent   time.Duration // of the sender's clock
	Bytes  int           // of the datagram, this header included
	Resent bool          // not the first transmission
	Last   bool          // no segment will follow this one
}

// Encode writes the header over the first config.HeaderBytes of b.
func (d *Data) Encode(b []byte) {
	var flags uint8
	if d.Resent {
		flags |= flagRtx
	}
	if d.Last {
		flags |= flagEnd
	}
	putPrefix(b, TypeData, flags, d.Flow)
	binary.BigEndian.PutUint64(b[8:], d.Seg)
	binary.BigEndian.PutUint64(b[16:], uint64(d.Sent))
	binary.BigEndian.PutUint32(b[24:], uint32(d.Bytes))
	binary.BigEndian.PutUint32(b[28:], 0)
}

// Decode reads a header from the first bytes of a segment. Whether all of the
// datagram has arrived is for the caller to compare with Bytes.
func (d *Data) Decode(b []byte) (err error) {
	if d.Flow, err = open(b, TypeData, config.HeaderBytes); err != nil {
		return err
	}
	d.Resent, d.Last = b[5]&flagRtx != 0, b[5]&flagEnd != 0
	d.Seg = binary.BigEndian.Uint64(b[8:])
	if d.Seg > math.MaxInt64 {
		return errors.New("a segment beyond 2^63")
	}
	if d.Sent, err = getTime(b[16:]); err != nil {
		return err
	}
	d.Bytes = int(binary.BigEndian.Uint32(b[24:]))
	if d.Bytes < config.HeaderBytes || d.Bytes > config.MaxMSS {
		return fmt.Errorf("a segment of %d bytes; allowed are %d to %d", d.Bytes, config.HeaderBytes, config.MaxMSS)
	}
	if binary.BigEndian.Uint32(b[28:]) != 0 {
		return errors.New("bytes 28 to 31 of a segment are not zero")
	}
	return nil
}

// A Block is a run of segments that have arrived: Start to End-1.
type Block struct{ Start, End uint64 }

// Ack is an acknowledgement.
//
//	 8  cumulative: all segments below have arrived, this one has not
//	16  segment that caused the ACK
//	24  its time of departure, of the sender's clock
//	32  time of its arrival, of the receiver's clock
//	40  distinct segments that have arrived, modulo 2^32
//	44  duplicates that have arrived, modulo 2^32
//	48  largest displacement so far, at most 65535
//	50  number of SACK blocks, 0 to 3
//	51  zero
//	52  SACK blocks of 16 bytes: first segment, segment after the last one
//
// The original's page calls the cumulative number the last contiguous segment;
// its trace and its events show the first missing one, as TCP has it.
type Ack struct {
	Flow         uint16
	Cum          uint64
	Seg          uint64
	Sent         time.Duration // of the sender's clock
	Arrived      time.Duration // of the receiver's clock
	Received     uint32
	Duplicates   uint32
	Displacement uint16
	Blocks       [MaxBlocks]Block
	NumBlocks    int
}

// Encode writes the ACK over the first bytes of b, which has room for
// MaxAckBytes, and returns how many it has. Empty blocks take none.
func (a *Ack) Encode(b []byte) int {
	putPrefix(b, TypeAck, 0, a.Flow)
	binary.BigEndian.PutUint64(b[8:], a.Cum)
	binary.BigEndian.PutUint64(b[16:], a.Seg)
	binary.BigEndian.PutUint64(b[24:], uint64(a.Sent))
	binary.BigEndian.PutUint64(b[32:], uint64(a.Arrived))
	binary.BigEndian.PutUint32(b[40:], a.Received)
	binary.BigEndian.PutUint32(b[44:], a.Duplicates)
	binary.BigEndian.PutUint16(b[48:], a.Displacement)
	b[50], b[51] = byte(a.NumBlocks), 0
	n := ackBytes
	for _, block := range a.Blocks[:a.NumBlocks] {
		binary.BigEndian.PutUint64(b[n:], block.Start)
		binary.BigEndian.PutUint64(b[n+8:], block.End)
		n += blockBytes
	}
	return n
}

// Decode reads a whole datagram.
func (a *Ack) Decode(b []byte) (err error) {
	*a = Ack{}
	if a.Flow, err = open(b, TypeAck, ackBytes); err != nil {
		return err
	}
	a.Cum, a.Seg = binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])
	if max(a.Cum, a.Seg) > math.MaxInt64 {
		return errors.New("a segment beyond 2^63")
	}
	if a.Sent, err = getTime(b[24:]); err != nil {
		return err
	}
	if a.Arrived, err = getTime(b[32:]); err != nil {
		return err
	}
	a.Received, a.Duplicates = binary.BigEndian.Uint32(b[40:]), binary.BigEndian.Uint32(b[44:])
	a.Displacement = binary.BigEndian.Uint16(b[48:])
	a.NumBlocks = int(b[50])
	if a.NumBlocks > MaxBlocks || b[51] != 0 || len(b) != ackBytes+a.NumBlocks*blockBytes {
		return fmt.Errorf("an ACK of %d bytes with %d blocks", len(b), a.NumBlocks)
	}
	for i := range a.NumBlocks {
		from := b[ackBytes+i*blockBytes:]
		block := Block{binary.BigEndian.Uint64(from), binary.BigEndian.Uint64(from[8:])}
		if block.Start <= a.Cum || block.Start >= block.End || block.End > math.MaxInt64 {
			return fmt.Errorf("SACK block %d to %d above ACK %d", block.Start, block.End, a.Cum)
		}
		for _, other := range a.Blocks[:i] {
			if block.Start <= other.End && other.Start <= block.End {
				return fmt.Errorf("SACK blocks %v and %v touch", other, block)
			}
		}
		a.Blocks[i] = block
	}
	return nil
}

// Hello is a greeting: from byte 8 on, the configuration as text, so that both
// ends can record both.
type Hello struct {
	Flow   uint16
	Answer bool // of the receiver
	Text   string
}

// Append appends the greeting.
func (h *Hello) Append(b []byte) ([]byte, error) {
	if len(h.Text) > MaxHelloText {
		return nil, fmt.Errorf("a configuration of %d bytes; a greeting takes %d", len(h.Text), MaxHelloText)
	}
	var prefix [helloBytes]byte
	t := TypeSyn
	if h.Answer {
		t = TypeSynAck
	}
	putPrefix(prefix[:], t, 0, h.Flow)
	return append(append(b, prefix[:]...), h.Text...), nil
}

// Decode reads a whole datagram.
func (h *Hello) Decode(b []byte) error {
	t, flow, err := Peek(b)
	if err != nil {
		return err
	}
	if t != TypeSyn && t != TypeSynAck {
		return fmt.Errorf("type %d is no greeting", t)
	}
	if len(b) > helloBytes+MaxHelloText {
		return fmt.Errorf("a greeting of %d bytes", len(b))
	}
	*h = Hello{Flow: flow, Answer: t == TypeSynAck, Text: string(b[helloBytes:])}
	return nil
}

// Fin ends a transfer.
//
//	 8  segments acknowledged
//	16  duration of the transfer in ns
type Fin struct {
	Flow     uint16
	Segments uint64
	Elapsed  time.Duration
}

// Append appends the datagram.
func (f *Fin) Append(b []byte) []byte {
	var d [finBytes]byte
	putPrefix(d[:], TypeFin, 0, f.Flow)
	binary.BigEndian.PutUint64(d[8:], f.Segments)
	binary.BigEndian.PutUint64(d[16:], uint64(f.Elapsed))
	return append(b, d[:]...)
}

// Decode reads a whole datagram.
func (f *Fin) Decode(b []byte) (err error) {
	if f.Flow, err = open(b, TypeFin, finBytes); err != nil {
		return err
	}
	if len(b) != finBytes {
		return fmt.Errorf("an end of %d bytes", len(b))
	}
	f.Segments = binary.BigEndian.Uint64(b[8:])
	f.Elapsed, err = getTime(b[16:])
	return err
}

// Report is what a receiver counted: from byte 8 on, the nine numbers of
// ReceiverStats in their order, 8 bytes each.
type Report struct {
	Flow uint16
	ReceiverStats
}

func (r *Report) numbers() [8]*uint64 {
	return [8]*uint64{&r.Arrived, &r.Received, &r.Bytes, &r.AcksSent, &r.Missing, &r.Duplicates, &r.Displacement, &r.Beyond}
}

// Append appends the datagram.
func (r *Report) Append(b []byte) []byte {
	var d [reportBytes]byte
	putPrefix(d[:], TypeReport, 0, r.Flow)
	for i, n := range r.numbers() {
		binary.BigEndian.PutUint64(d[8+8*i:], *n)
	}
	binary.BigEndian.PutUint64(d[72:], uint64(r.Elapsed))
	return append(b, d[:]...)
}

// Decode reads a whole datagram.
func (r *Report) Decode(b []byte) (err error) {
	if r.Flow, err = open(b, TypeReport, reportBytes); err != nil {
		return err
	}
	if len(b) != reportBytes {
		return fmt.Errorf("a report of %d bytes", len(b))
	}
	for i, n := range r.numbers() {
		*n = binary.BigEndian.Uint64(b[8+8*i:])
	}
	r.Elapsed, err = getTime(b[72:])
	return err
}
