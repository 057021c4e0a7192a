package config

import (
	"encoding/json"
	"io"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestSample(t *testing.T) {
	c, err := ParseSender(strings.NewReader(`# swift to stingray
host stingray.ccs.ornl.gov
port	7890   # a tab
debug 4

initsegs 2
mss 1460
tick 1.0
timeout 0.5
rcvrwin 300
thresh_init 1.0
maxpkts 12000
maxtime 0
vegas_rtt max
gap 12.5
droplist 500, 100 300
`), "atou.conf")
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultSender()
	want.Host, want.Debug, want.MaxPkts, want.MaxTime, want.VegasRTT = "stingray.ccs.ornl.gov", 4, 12000, 0, RTTMax
	want.Gap = 12500
	want.DropList = []uint64{100, 300, 500}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("%+v, want %+v", c, want)
	}
	r, err := ParseReceiver(strings.NewReader("sack 1\ndelack 200\nrcvbuf 65536\nport 7891\ndebug 2\n"), "server.conf")
	if want := (Receiver{7891, 2, 65536, true, 200 * time.Millisecond}); err != nil || r != want {
		t.Errorf("%+v, %v; want %+v", r, err, want)
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"mss 1460\nmss 1400", "f:2: mss stands in line 1 already"},
		{"\nmss abc", `f:2: mss: found "abc"; allowed is a whole number from 32 to 65507`},
		{"mss 31", `f:1: mss: found "31"; allowed is a whole number from 32 to 65507`},
		{"mss", "f:1: mss has no value; allowed is a whole number from 32 to 65507"},
		{"mss 1460 9", `f:1: mss: found "1460 9"; allowed is a whole number from 32 to 65507`},
		{"multiplier NaN", `f:1: multiplier: found "NaN"; allowed is a number from 0.01 to 0.99`},
		{"timeout 0", `f:1: timeout: found "0"; allowed is a number from 0.001 to 64 in s`},
		{"gap -1", `f:1: gap: found "-1"; allowed is a number from 0 to 1e+06 in us`},
		{"sack yes", `f:1: sack: found "yes"; allowed is 0 or 1`},
		{"vegas_rtt mean", `f:1: vegas_rtt: found "mean"; allowed is one of min, last, max, avg`},
		{"droplist 5 x", `f:1: droplist: found "5 x"; allowed is numbers of segments, from 0, with commas or spaces between them`},
		{"host a b", `f:1: host: found "a b"; allowed is one word`},
		{"delack 5", "f:1: delack is a key of the receiver"},
		{"MSS 5", `f:1: "MSS" is no key; allowed are host, port`},
		{"mss 1\nsack 2", "f:2: sack"}, // all of them
		{"maxtime 0", "f: maxpkts and maxtime are both 0: the transfer has no end"},
		{"initsegs 301", "f: initsegs 301 is more than rcvrwin 300"},
		{"fack 1", "f: fack 1 needs sack 1"},
		{"rampdown 1", "f: rampdown 1 needs sack 1"},
		{"prr 1", "f: prr 1 needs sack 1"},
		{"reloss 1", "f: reloss 1 needs sack 1"},
		{"sack 1\nprr 1\nrampdown 1", "f: prr 1 and rampdown 1 exclude each other"},
		{"highspeed 1\nscalable 1", "f: highspeed 1 and scalable 1 exclude each other"},
		{"vegas_floyd 1", "f: vegas_floyd 1 needs vegas 1"},
		{"alpha 4", "f: alpha 4 is more than beta 3"},
		{"droplist 7,7", "f: droplist names 7 twice"},
		{"maxpkts 7\ndroplist 7", "f: droplist names 7, but segments are 0 to 6 (maxpkts 7)"},
	} {
		if _, err := ParseSender(strings.NewReader(c.text), "f"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.text, err, c.want)
		}
	}
	if _, err := ParseReceiver(strings.NewReader("mss 5"), "f"); err == nil || err.Error() != "f:1: mss is a key of the sender" {
		t.Error(err)
	}
}

// TestLongLine: a list of segments may be of any length that a host has.
func TestLongLine(t *testing.T) {
	list := "droplist 1"
	for i := 2; len(list) < 1<<17; i++ {
		list += "," + strconv.Itoa(i)
	}
	if c, err := ParseSender(strings.NewReader(list), "f"); err != nil || len(c.DropList) < 10000 {
		t.Errorf("%d of them, %v", len(c.DropList), err)
	}
	r := io.MultiReader(strings.NewReader("mss 1000\n"), iotest.ErrReader(io.ErrClosedPipe))
	if _, err := ParseSender(r, "f"); err == nil || err.Error() != "f:2: reading: io: read/write on closed pipe" {
		t.Error(err)
	}
}

func TestOf(t *testing.T) {
	c, err := SenderOf(map[string]string{"mss": "1000", "droplist": "3, 2"}, "sender")
	if err != nil || c.MSS != 1000 || len(c.DropList) != 2 || c.RcvrWin != 300 {
		t.Errorf("%+v, %v", c, err)
	}
	want := `sender."fast" is no key; allowed are host`
	if _, err := SenderOf(map[string]string{"mss": "5", "fast": "1", "sack": ""}, "sender"); err == nil || !strings.HasPrefix(err.Error(), want) ||
		!strings.HasSuffix(err.Error(), "\nsender.mss: found \"5\"; allowed is a whole number from 32 to 65507\nsender.sack has no value; allowed is 0 or 1") {
		t.Error(err)
	}
	if _, err := ReceiverOf(map[string]string{"mss": "5"}, "receiver"); err == nil || err.Error() != "receiver.mss is a key of the sender" {
		t.Error(err)
	}
}

// FuzzParse checks that what is read is written and read again as the same.
func FuzzParse(f *testing.F) {
	f.Add("host a\ndroplist 5,1\nmaxidle 2.5\ntick 0.1\ngap 0.5\n")
	f.Add("maxtime 0.3\nvegas 1\nvegas_rtt last\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseSender(strings.NewReader(text), "f")
		if err != nil {
			return
		}
		b, _ := c.AppendText(nil)
		again, err := ParseSender(strings.NewReader(string(b)), "f")
		if err != nil || !reflect.DeepEqual(c, again) {
			t.Errorf("%+v becomes %+v, %v", c, again, err)
		}
	})
}

// TestKeysFile compares the table that scenarios are checked against with that
// of this package.
func TestKeysFile(t *testing.T) {
	b, err := os.ReadFile("../../../src/dumbbell/scenario/atou.json")
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.MarshalIndent(AllKeys(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if string(b) != string(want)+"\n" {
		t.Error("src/dumbbell/scenario/atou.json is older than the keys: go generate ./transports/atou/config")
	}
}
