package observe

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mdlayher/netlink"
)

// An attribute is one of a netlink message, or of another attribute.
type attribute struct {
	kind uint16
	data []byte
}

func attributes(b []byte) (all []attribute, err error) {
	d, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return nil, err
	}
	for d.Next() {
		all = append(all, attribute{d.Type(), d.Bytes()})
	}
	return all, d.Err()
}

// find is the content of an attribute; nil if it is not there.
func find(all []attribute, kind uint16) []byte {
	for _, a := range all {
		if a.kind == kind {
			return a.data
		}
	}
	return nil
}

func findString(all []attribute, kind uint16) string { return cString(find(all, kind)) }

// cString is a string of C.
func cString(b []byte) string {
	text, _, _ := strings.Cut(string(b), "\x00")
	return text
}

// u32 is the number at an offset; 0 where there is none.
func u32(b []byte, offset int) uint32 {
	if len(b) < offset+4 {
		return 0
	}
	return binary.NativeEndian.Uint32(b[offset:])
}

// number writes what has the length of a number as one, and else hexadecimal.
func number(b []byte) string {
	switch len(b) {
	case 1:
		return strconv.Itoa(int(b[0]))
	case 2:
		return strconv.Itoa(int(binary.NativeEndian.Uint16(b)))
	case 4:
		return strconv.FormatUint(uint64(binary.NativeEndian.Uint32(b)), 10)
	case 8:
		return strconv.FormatUint(binary.NativeEndian.Uint64(b), 10)
	}
	return "0x" + hex.EncodeToString(b)
}

// text writes attributes in the order of their numbers, by their names where
// there are any. Those of the given numbers are left out.
func text(all []attribute, names []string, without ...uint16) string {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b attribute) int { return int(a.kind) - int(b.kind) })
	var words []string
	for _, a := range all {
		if slices.Contains(without, a.kind) {
			continue
		}
		name := fmt.Sprint("attribute", a.kind)
		if int(a.kind) < len(names) && names[a.kind] != "" {
			name = names[a.kind]
		}
		words = append(words, name+" "+number(a.data))
	}
	return strings.Join(words, " ")
}
