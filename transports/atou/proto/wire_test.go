package proto

import (
	"bytes"
	"math"
	"testing"
	"time"

	"dumbbell/transports/atou/config"

	"pgregory.net/rapid"
)

var (
	anyTime = rapid.Custom(func(t *rapid.T) time.Duration { return time.Duration(rapid.Int64Min(0).Draw(t, "ns")) })
	anyID   = rapid.Custom(func(t *rapid.T) ID { return ID{rapid.Uint16().Draw(t, "flow"), rapid.Uint32().Draw(t, "tag")} })
	anySeg  = rapid.Uint64Range(0, math.MaxInt64)
)

func TestDataRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Data{
			ID: anyID.Draw(t, "id"), Seg: anySeg.Draw(t, "seg"), Sent: anyTime.Draw(t, "sent"),
			Bytes:  rapid.IntRange(config.HeaderBytes, config.MaxMSS).Draw(t, "bytes"),
			Resent: rapid.Bool().Draw(t, "resent"), Last: rapid.Bool().Draw(t, "last"),
		}
		b := bytes.Repeat([]byte{0xff}, config.HeaderBytes)
		want.Encode(b)
		var got Data
		if err := got.Decode(b); err != nil || got != want {
			t.Fatalf("%+v, %v; want %+v", got, err, want)
		}
	})
}

func TestAckRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Ack{
			ID: anyID.Draw(t, "id"), Cum: rapid.Uint64Range(0, 1<<40).Draw(t, "cum"), Seg: anySeg.Draw(t, "seg"),
			Sent: anyTime.Draw(t, "sent"), Arrived: anyTime.Draw(t, "arrived"),
			Received: rapid.Uint32().Draw(t, "received"), Duplicates: rapid.Uint32().Draw(t, "duplicates"),
			Displacement: rapid.Uint16().Draw(t, "displacement"), NumBlocks: rapid.IntRange(0, MaxBlocks).Draw(t, "blocks"),
		}
		end := want.Cum
		for i := range want.NumBlocks {
			start := end + rapid.Uint64Range(1, 1000).Draw(t, "gap")
			end = start + rapid.Uint64Range(1, 1000).Draw(t, "length")
			want.Blocks[i] = Block{start, end}
		}
		b := bytes.Repeat([]byte{0xff}, MaxAckBytes)
		n := want.Encode(b)
		if n != 56+16*want.NumBlocks { // empty blocks take no bytes
			t.Fatalf("%d bytes for %d blocks", n, want.NumBlocks)
		}
		var got Ack
		if err := got.Decode(b[:n]); err != nil || got != want {
			t.Fatalf("%+v, %v; want %+v", got, err, want)
		}
		if got.Decode(b[:n-1]) == nil {
			t.Fatal("a short ACK decodes")
		}
	})
}

func TestControlRoundTrip(t *testing.T) {
	fin := Fin{ID: ID{3, 4}, Segments: 12000, Elapsed: 3 * time.Second}
	var gotFin Fin
	if err := gotFin.Decode(fin.Append(nil)); err != nil || gotFin != fin {
		t.Errorf("%+v, %v; want %+v", gotFin, err, fin)
	}
	report := Report{ID{7, 8}, ReceiverStats{1, 2, 3, 4, 5, 6, 7, 8, 9}}
	var gotReport Report
	if err := gotReport.Decode(report.Append(nil)); err != nil || gotReport != report {
		t.Errorf("%+v, %v; want %+v", gotReport, err, report)
	}
}

// TestStrict changes one byte of a datagram that decodes.
func TestStrict(t *testing.T) {
	data := make([]byte, config.HeaderBytes)
	(&Data{Seg: 5, Bytes: 0x0110}).Encode(data)
	ack := make([]byte, MaxAckBytes)
	ack = ack[:(&Ack{Cum: 4, Blocks: [3]Block{{6, 8}, {10, 11}}, NumBlocks: 2}).Encode(ack)]
	datagrams := map[string][]byte{"data": data, "ack": ack, "fin": (&Fin{}).Append(nil), "report": (&Report{}).Append(nil)}
	decoders := map[string]func([]byte) error{
		"data": (&Data{}).Decode, "ack": (&Ack{}).Decode, "fin": (&Fin{}).Decode, "report": (&Report{}).Decode,
	}
	for _, c := range []struct {
		name string
		of   string
		at   int
		to   byte
	}{
		{"magic", "data", 0, 'x'}, {"version", "data", 3, 2}, {"type", "data", 4, 2}, {"no type", "data", 4, 0},
		{"flags", "data", 5, 4}, {"segment", "data", 16, 0x80}, {"time", "data", 24, 0x80}, {"bytes", "data", 12, 1},
		{"too small", "data", 14, 0},
		{"flags", "ack", 5, 1}, {"cumulative", "ack", 16, 0x80}, {"blocks", "ack", 14, 1}, {"many blocks", "ack", 14, 4},
		{"padding", "ack", 15, 1}, {"block below", "ack", 63, 4}, {"block empty", "ack", 71, 6},
		{"blocks touch", "ack", 79, 8}, {"blocks overlap", "ack", 79, 7},
		{"padding", "fin", 12, 1}, {"time", "fin", 24, 0x80}, {"padding", "report", 12, 1}, {"time", "report", 80, 0x80},
	} {
		b := bytes.Clone(datagrams[c.of])
		if err := decoders[c.of](b); err != nil {
			t.Fatal(err)
		}
		b[c.at] = c.to
		if decoders[c.of](b) == nil {
			t.Errorf("%s: a wrong %s decodes", c.of, c.name)
		}
	}
}

// FuzzDecode checks that whatever decodes is encoded to the same bytes.
func FuzzDecode(f *testing.F) {
	data := make([]byte, config.HeaderBytes)
	(&Data{Seg: 5, Bytes: 1460, Resent: true}).Encode(data)
	ack := make([]byte, MaxAckBytes)
	n := (&Ack{Cum: 4, Blocks: [3]Block{{6, 8}, {10, 11}}, NumBlocks: 2}).Encode(ack)
	for _, seed := range [][]byte{data, ack[:n], (&Fin{}).Append(nil), (&Report{}).Append(nil)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var d Data
		if d.Decode(b) == nil {
			again := make([]byte, config.HeaderBytes)
			if d.Encode(again); !bytes.Equal(again, b[:config.HeaderBytes]) {
				t.Errorf("%x becomes %x", b, again)
			}
		}
		var a Ack
		if a.Decode(b) == nil {
			again := make([]byte, MaxAckBytes)
			if n := a.Encode(again); !bytes.Equal(again[:n], b) {
				t.Errorf("%x becomes %x", b, again[:n])
			}
		}
		var fin Fin
		if fin.Decode(b) == nil && !bytes.Equal(fin.Append(nil), b) {
			t.Errorf("%x becomes %x", b, fin.Append(nil))
		}
		var r Report
		if r.Decode(b) == nil && !bytes.Equal(r.Append(nil), b) {
			t.Errorf("%x becomes %x", b, r.Append(nil))
		}
	})
}
