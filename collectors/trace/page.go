package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// The ring buffer's pages (kernel/trace/ring_buffer.c, include/linux/ring_buffer.h):
// a time in ns and the length of what follows, then records, each with a word
// of 5 bits of type or length and 27 bits of time since the one before.
const (
	pageHeader = 16

	lengthMask   = 1<<20 - 1
	missedEvents = 1 << 31 // RB_MISSED_EVENTS: records were overwritten before this page
	missedStored = 1 << 30 // RB_MISSED_STORED: their number follows the records

	typePadding   = 29
	typeTimeDelta = 30
	typeTime      = 31
)

// readPage calls record for every record of a page, with its time on the
// trace's clock, and returns how many records were lost before it: at least
// one where the kernel does not say how many.
func readPage(page []byte, record func(at time.Duration, data []byte)) (lost int64, err error) {
	if len(page) < pageHeader {
		return 0, fmt.Errorf("a page of %d bytes", len(page))
	}
	at := binary.NativeEndian.Uint64(page)
	commit := binary.NativeEndian.Uint64(page[8:])
	length := int(commit & lengthMask)
	if length > len(page)-pageHeader {
		return 0, fmt.Errorf("a page of %d bytes says that it has %d", len(page), length)
	}
	if commit&missedEvents != 0 {
		lost = 1
		if end := pageHeader + length; commit&missedStored != 0 && end+8 <= len(page) {
			lost = max(lost, int64(binary.NativeEndian.Uint64(page[end:])))
		}
	}
	errShort := errors.New("a record ends beyond its page")
	for b := page[pageHeader : pageHeader+length]; len(b) >= 4; {
		word := binary.NativeEndian.Uint32(b)
		kind, delta := word&31, uint64(word>>5)
		var array uint32
		if kind == 0 || kind >= typePadding {
			if kind == typePadding && delta == 0 {
				break // the rest is empty
			}
			if len(b) < 8 {
				return lost, errShort
			}
			array = binary.NativeEndian.Uint32(b[4:])
		}
		total := 4 + int(kind)*4
		switch kind {
		case 0, typePadding:
			total = 4 + int(array)
		case typeTimeDelta, typeTime:
			total = 8
		}
		if total < 4 || total > len(b) || kind == 0 && array < 4 {
			return lost, errShort
		}
		switch kind {
		case typeTime: // of 59 bits; the rest does not change within a page
			at = at&^(1<<59-1) | uint64(array)<<27 | delta
		case typeTimeDelta:
			at += uint64(array)<<27 | delta
		case typePadding:
			at += delta
		case 0:
			at += delta
			record(time.Duration(at), b[8:total])
		default:
			at += delta
			record(time.Duration(at), b[4:total])
		}
		b = b[min((total+3)&^3, len(b)):]
	}
	return lost, nil
}
