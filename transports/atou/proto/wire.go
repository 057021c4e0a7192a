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
	TypeData      Type = iota + 1
	TypeAck            // a receiver's acknowledgement
	TypeHello          // a sender asks for a challenge; this and the next four are package handshake's
	TypeChallenge      // a receiver's answer
	TypeOpen           // a sender opens a flow
	TypeAccept         // a receiver has opened it
	TypeRefuse         // or has not
	TypeFin            // a sender's end
	TypeReport         // a receiver's answer, with what it counted
)

const (
	magic   = 0x61746f01 // "ato", version 1
	flagRtx = 1 << 0
	flagEnd = 1 << 1

	ackBytes    = 56
	blockBytes  = 16
	finBytes    = 32
	reportBytes = 88
)

// PrefixBytes is how much is the same in every datagram.
const PrefixBytes = 12

// TypeAt is where in it the type is.
const TypeAt = 4

// MaxBlocks is how many SACK blocks an ACK has room for.
const MaxBlocks = 3

// MaxAckBytes is the size of the largest ACK.
const MaxAckBytes = ackBytes + MaxBlocks*blockBytes

// ErrForeign is a datagram of something else, or of another version.
var ErrForeign = errors.New("not a datagram of atou")

// An ID is by what the datagrams of a flow are known.
type ID struct {
	Flow uint16 // number at the receiver, from 1
	Tag  uint32 // random, so that no one off the path makes datagrams of the flow
}

// PutPrefix writes what every datagram begins with, big endian:
//
//	0  magic "ato" and version 1
//	4  type
//	5  flags: 1 retransmission, 2 last segment; both of data only
//	6  flow
//	8  tag
func PutPrefix(b []byte, t Type, id ID) {
	binary.BigEndian.PutUint32(b, magic)
	b[TypeAt], b[TypeAt+1] = byte(t), 0
	binary.BigEndian.PutUint16(b[6:], id.Flow)
	binary.BigEndian.PutUint32(b[8:], id.Tag)
}

// Peek tells the type and the flow of a datagram.
func Peek(b []byte) (Type, ID, error) {
	if len(b) < PrefixBytes || binary.BigEndian.Uint32(b) != magic {
		return 0, ID{}, ErrForeign
	}
	t := Type(b[4])
	if t < TypeData || t > TypeReport {
		return 0, ID{}, fmt.Errorf("type %d: %w", t, ErrForeign)
	}
	if b[5] != 0 && (t != TypeData || b[5] > flagRtx|flagEnd) {
		return 0, ID{}, fmt.Errorf("flags %#x of type %d: %w", b[5], t, ErrForeign)
	}
	return t, ID{binary.BigEndian.Uint16(b[6:]), binary.BigEndian.Uint32(b[8:])}, nil
}

// open reads the first bytes of a datagram of a type of at least so many bytes.
func open(b []byte, want Type, least int) (ID, error) {
	t, id, err := Peek(b)
	switch {
	case err != nil:
		return ID{}, err
	case t != want:
		return ID{}, fmt.Errorf("type %d, not %d", t, want)
	case len(b) < least:
		return ID{}, fmt.Errorf("%d bytes of type %d, which has %d at least", len(b), t, least)
	}
	return id, nil
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
//	12  bytes of the datagram
//	16  segment, from 0
//	24  time of departure in ns of the sender's clock
type Data struct {
	ID     ID
	Seg    uint64
	Sent   time.Duration // of the sender's clock
	Bytes  int           // of the datagram, this header included
	Resent bool          // not the first transmission
	Last   bool          // no segment will follow this one
}

// Encode writes the header over the first config.HeaderBytes of b.
func (d *Data) Encode(b []byte) {
	PutPrefix(b, TypeData, d.ID)
	if d.Resent {
		b[5] |= flagRtx
	}
	if d.Last {
		b[5] |= flagEnd
	}
	binary.BigEndian.PutUint32(b[12:], uint32(d.Bytes))
	binary.BigEndian.PutUint64(b[16:], d.Seg)
	binary.BigEndian.PutUint64(b[24:], uint64(d.Sent))
}

// Decode reads a header from the first bytes of a segment. Whether all of the
// datagram has arrived is for the caller to compare with Bytes.
func (d *Data) Decode(b []byte) (err error) {
	if d.ID, err = open(b, TypeData, config.HeaderBytes); err != nil {
		return err
	}
	d.Resent, d.Last = b[5]&flagRtx != 0, b[5]&flagEnd != 0
	d.Bytes = int(binary.BigEndian.Uint32(b[12:]))
	if d.Bytes < config.HeaderBytes || d.Bytes > config.MaxMSS {
		return fmt.Errorf("a segment of %d bytes; allowed are %d to %d", d.Bytes, config.HeaderBytes, config.MaxMSS)
	}
	d.Seg = binary.BigEndian.Uint64(b[16:])
	if d.Seg > math.MaxInt64 {
		return errors.New("a segment beyond 2^63")
	}
	d.Sent, err = getTime(b[24:])
	return err
}

// A Block is a run of segments that have arrived: Start to End-1.
type Block struct{ Start, End uint64 }

// Ack is an acknowledgement.
//
//	12  largest displacement so far, at most 65535
//	14  number of SACK blocks, 0 to 3
//	15  zero
//	16  cumulative: all segments below have arrived, this one has not
//	24  segment that caused the ACK
//	32  its time of departure, of the sender's clock
//	40  time of its arrival, of the receiver's clock
//	48  distinct segments that have arrived, modulo 2^32
//	52  duplicates that have arrived, modulo 2^32
//	56  SACK blocks of 16 bytes: first segment, segment after the last one
//
// The original's page calls the cumulative number the last contiguous segment;
// its trace and its events show the first missing one, as TCP has it.
type Ack struct {
	ID           ID
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
	PutPrefix(b, TypeAck, a.ID)
	binary.BigEndian.PutUint16(b[12:], a.Displacement)
	b[14], b[15] = byte(a.NumBlocks), 0
	binary.BigEndian.PutUint64(b[16:], a.Cum)
	binary.BigEndian.PutUint64(b[24:], a.Seg)
	binary.BigEndian.PutUint64(b[32:], uint64(a.Sent))
	binary.BigEndian.PutUint64(b[40:], uint64(a.Arrived))
	binary.BigEndian.PutUint32(b[48:], a.Received)
	binary.BigEndian.PutUint32(b[52:], a.Duplicates)
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
	if a.ID, err = open(b, TypeAck, ackBytes); err != nil {
		return err
	}
	a.Cum, a.Seg = binary.BigEndian.Uint64(b[16:]), binary.BigEndian.Uint64(b[24:])
	if max(a.Cum, a.Seg) > math.MaxInt64 {
		return errors.New("a segment beyond 2^63")
	}
	if a.Sent, err = getTime(b[32:]); err != nil {
		return err
	}
	if a.Arrived, err = getTime(b[40:]); err != nil {
		return err
	}
	a.Received, a.Duplicates = binary.BigEndian.Uint32(b[48:]), binary.BigEndian.Uint32(b[52:])
	a.Displacement = binary.BigEndian.Uint16(b[12:])
	a.NumBlocks = int(b[14])
	if a.NumBlocks > MaxBlocks || b[15] != 0 || len(b) != ackBytes+a.NumBlocks*blockBytes {
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

// Fin ends a transfer.
//
//	12  zero
//	16  segments acknowledged
//	24  duration of the transfer in ns
type Fin struct {
	ID       ID
	Segments uint64
	Elapsed  time.Duration
}

// Append appends the datagram.
func (f *Fin) Append(b []byte) []byte {
	var d [finBytes]byte
	PutPrefix(d[:], TypeFin, f.ID)
	binary.BigEndian.PutUint64(d[16:], f.Segments)
	binary.BigEndian.PutUint64(d[24:], uint64(f.Elapsed))
	return append(b, d[:]...)
}

// Decode reads a whole datagram.
func (f *Fin) Decode(b []byte) (err error) {
	if f.ID, err = open(b, TypeFin, finBytes); err != nil {
		return err
	}
	if len(b) != finBytes || binary.BigEndian.Uint32(b[12:]) != 0 {
		return fmt.Errorf("an end of %d bytes, or not zero at 12", len(b))
	}
	f.Segments = binary.BigEndian.Uint64(b[16:])
	f.Elapsed, err = getTime(b[24:])
	return err
}

// Report is what a receiver counted: zero at byte 12, and from byte 16 on the
// nine numbers of ReceiverStats in their order, 8 bytes each.
type Report struct {
	ID ID
	ReceiverStats
}

func (r *Report) numbers() [8]*uint64 {
	return [8]*uint64{&r.Arrived, &r.Received, &r.Bytes, &r.AcksSent, &r.Missing, &r.Duplicates, &r.Displacement, &r.Beyond}
}

// Append appends the datagram.
func (r *Report) Append(b []byte) []byte {
	var d [reportBytes]byte
	PutPrefix(d[:], TypeReport, r.ID)
	for i, n := range r.numbers() {
		binary.BigEndian.PutUint64(d[16+8*i:], *n)
	}
	binary.BigEndian.PutUint64(d[80:], uint64(r.Elapsed))
	return append(b, d[:]...)
}

// Decode reads a whole datagram.
func (r *Report) Decode(b []byte) (err error) {
	if r.ID, err = open(b, TypeReport, reportBytes); err != nil {
		return err
	}
	if len(b) != reportBytes || binary.BigEndian.Uint32(b[12:]) != 0 {
		return fmt.Errorf("a report of %d bytes, or not zero at 12", len(b))
	}
	for i, n := range r.numbers() {
		*n = binary.BigEndian.Uint64(b[16+8*i:])
	}
	r.Elapsed, err = getTime(b[80:])
	return err
}
