package qdisc

import (
	"encoding/json"
	"slices"
	"testing"
	"time"
)

// TestPolicer sends real packets to a policer, which drops some, and compares
// with what tc reads.
func TestPolicer(t *testing.T) {
	veth(t)
	run(t, "tc qdisc add dev left clsact")
	if !tryRun("tc filter add dev left egress pref 1 matchall action police index 7 rate 80kbit burst 3000 mtu 65535 conform-exceed drop/ok") {
		t.Skip("needs act_police")
	}
	sendDatagrams(t, 20) // 2 in the burst, the rest dropped
	got := slices.DeleteFunc(list(t), func(s Stats) bool { return s.Kind != "police" })
	if len(got) != 1 {
		t.Fatalf("%d policers: %+v", len(got), got)
	}
	var want []struct {
		Options struct {
			Actions []struct {
				Stats struct{ Bytes, Packets, Drops, Overlimits uint64 }
			}
		}
	}
	if err := json.Unmarshal(run(t, "tc -s -j filter show dev left egress"), &want); err != nil {
		t.Fatal(err)
	}
	w := want[len(want)-1].Options.Actions[0].Stats
	s := got[0]
	if s.Device != "left" || s.Parent != "egress" || s.Handle != "7" {
		t.Errorf("it is %+v", s)
	}
	if s.Bytes != w.Bytes || s.Packets != w.Packets || uint64(s.Drops) != w.Drops || uint64(s.Overlimits) != w.Overlimits {
		t.Errorf("%+v, tc says %+v", s, w)
	}
	if s.Packets != 20 || s.Bytes != 20*1042 || s.Drops != 18 { // with headers of 42 bytes
		t.Errorf("%d packets of %d bytes came, %d were dropped", s.Packets, s.Bytes, s.Drops)
	}
	fields := readSettings(t, "police", s.options)
	if fields["rate_bps"] != 80_000 || fields["burst_ns"] != 300e6 {
		t.Errorf("its settings are %v", fields)
	}
}

// TestPolicersAreFoundLate: one that comes later is found within a second, and
// one that goes is not told of any more.
func TestPolicersAreFoundLate(t *testing.T) {
	namespace(t)
	run(t, "ip link add name left type veth peer name right")
	run(t, "tc qdisc add dev left clsact")
	c, err := Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	policers := func() int {
		stats, err := c.List()
		if err != nil {
			t.Fatal(err)
		}
		return len(slices.DeleteFunc(stats, func(s Stats) bool { return s.Kind != "police" }))
	}
	if policers() != 0 {
		t.Error("there is a policer at first")
	}
	if !tryRun("tc filter add dev left egress pref 1 matchall action police rate 80kbit burst 3000 conform-exceed drop/ok") {
		t.Skip("needs act_police")
	}
	c.looked = time.Time{} // as if a second had passed
	if n := policers(); n != 1 {
		t.Errorf("%d policers after one was added", n)
	}
	run(t, "tc filter del dev left egress")
	if n := policers(); n != 0 {
		t.Errorf("%d policers after it was deleted", n)
	}
}

func FuzzDecodePolicers(f *testing.F) {
	f.Add(make([]byte, messageLength))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if found, err := decodePolicers(b); err == nil && len(b) < messageLength {
			t.Errorf("decoded %d bytes to %+v", len(b), found)
		}
	})
}
