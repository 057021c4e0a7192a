package qdisc

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"maps"
	"math"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"dumbbell/collectors/clock"
	"dumbbell/collectors/row"

	"github.com/influxdata/line-protocol/v2/lineprotocol"
	"golang.org/x/sys/unix"
)

// namespace puts the test, and the commands it runs, into a network namespace
// of its own. The thread, which is not given back, takes it away at its end.
func namespace(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for a network namespace")
	}
	for _, program := range []string{"ip", "tc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("needs iproute2: ", err)
		}
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal("unsharing the network namespace: ", err)
	}
	// A device that comes up would send packets of its own, which are then counted.
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0); err != nil && !os.IsNotExist(err) {
		t.Fatal("switching IPv6 off: ", err)
	}
}

func run(t *testing.T, command string) []byte {
	t.Helper()
	args := strings.Fields(command)
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
	return out
}

// tryRun reports whether the kernel can do a command.
func tryRun(command string) bool {
	args := strings.Fields(command)
	return exec.Command(args[0], args[1:]...).Run() == nil
}

func list(t *testing.T) []Stats {
	t.Helper()
	c, err := Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	stats, err := c.List()
	if err != nil {
		t.Fatal(err)
	}
	return stats
}

// veth makes a namespace in which device left leads to device right.
func veth(t *testing.T) {
	t.Helper()
	namespace(t)
	run(t, "ip link add name left type veth peer name right")
	run(t, "ip address add 198.18.0.1/24 dev left")
	run(t, "ip link set left up")
	run(t, "ip link set right up")
	run(t, "ip neighbour add 198.18.0.2 lladdr 02:00:00:00:00:02 dev left")
}

// sendDatagrams sends so many datagrams of 1000 bytes by device left, at once.
func sendDatagrams(t *testing.T, number int) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for range number {
		unix.Sendto(fd, make([]byte, 1000), 0, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{198, 18, 0, 2}})
	}
}

// TestAgainstTC sends real packets through a qdisc, some of which it drops,
// and compares with what tc reads.
func TestAgainstTC(t *testing.T) {
	veth(t)
	run(t, "tc qdisc add dev left root handle 1: tbf rate 80kbit burst 2000 limit 5000")
	sendDatagrams(t, 20) // 1 in the burst, 4 or so in the queue, the rest dropped
	var want []struct {
		Kind, Handle, Dev                           string
		Root                                        bool
		Bytes, Packets, Drops, Overlimits, Requeues uint64
		Backlog, QLen                               uint32
	}
	var got []Stats
	for deadline := time.Now().Add(10 * time.Second); ; { // until the queue has drained and both see the same
		got = slices.DeleteFunc(slices.Clone(list(t)), func(s Stats) bool { return s.Device != "left" })
		if err := json.Unmarshal(run(t, "tc -s -j qdisc show dev left"), &want); err != nil {
			t.Fatal(err)
		}
		if len(got) != 1 || len(want) != 1 || got[0].QueueLength == 0 {
			break
		}
		if got[0].Backlog == 0 {
			t.Fatalf("packets without bytes are queued: %+v", got[0])
		}
		if time.Now().After(deadline) {
			t.Fatalf("still queued: %+v", got)
		}
	}
	if len(got) != 1 || len(want) != 1 {
		t.Fatalf("%d qdiscs, tc shows %d: %+v", len(got), len(want), got)
	}
	w := want[0]
	got[0].options = nil
	if expected := (Stats{Device: "left", Kind: "tbf", Handle: "1:", Parent: "root", Bytes: w.Bytes, Packets: w.Packets,
		Drops: uint32(w.Drops), Overlimits: uint32(w.Overlimits), Requeues: uint32(w.Requeues)}); !reflect.DeepEqual(got[0], expected) {
		t.Errorf("%+v, tc says %+v", got[0], expected)
	}
	if got[0].Drops == 0 || got[0].Bytes == 0 || got[0].Overlimits == 0 {
		t.Errorf("nothing was sent, dropped or delayed: %+v", got[0])
	}
}

// TestMultiqueue: of mq and its leaves, mq and the leaves with a handle stay.
func TestMultiqueue(t *testing.T) {
	namespace(t)
	run(t, "ip link add name left numtxqueues 3 type veth peer name right")
	run(t, "ip link set left up")
	run(t, "tc qdisc replace dev left root handle 1: mq")
	run(t, "tc qdisc replace dev left parent 1:2 handle 20: pfifo limit 7")
	var got []string
	for _, s := range list(t) {
		if s.Device == "right" {
			continue
		}
		got = append(got, strings.Join([]string{s.Device, s.Kind, s.Handle, s.Parent}, " "))
	}
	slices.Sort(got)
	if want := []string{"left mq 1: root", "left pfifo 20: 1:2"}; !slices.Equal(got, want) {
		t.Errorf("qdiscs %q, want %q", got, want)
	}
}

// TestClasses: of an htb tree each class has a row, with what htb adds, and
// the bytes that went through it.
func TestClasses(t *testing.T) {
	veth(t)
	run(t, "tc qdisc add dev left root handle 1: htb default 10")
	run(t, "tc class add dev left parent 1: classid 1:1 htb rate 100mbit")
	run(t, "tc class add dev left parent 1:1 classid 1:10 htb rate 100mbit")
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for range 10 {
		unix.Sendto(fd, make([]byte, 1000), 0, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{198, 18, 0, 2}})
	}
	clock, err := clock.New()
	if err != nil {
		t.Fatal(err)
	}
	source, err := NewSource(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	wanted := []string{
		"qdisc,dev=left,handle=1:,kind=htb,parent=root backlog_bytes=0i,qlen_packets=0i,",
		"tc_class,dev=left,handle=1:1,kind=htb,parent=root ",
		"tc_class,dev=left,handle=1:10,kind=htb,parent=1:1 ",
		"packets=10i", "lends=10i", "ctokens=",
	}
	rows := row.NewRows(clock)
	missing := func() []string {
		rows.Reset()
		if err := source.Sample(rows); err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(slices.Clone(wanted), func(w string) bool { return strings.Contains(string(rows.Bytes()), w) })
	}
	left := missing()
	for until := time.Now().Add(10 * time.Second); len(left) > 0 && time.Now().Before(until); {
		left = missing() // htb holds packets for some microseconds
	}
	if len(left) > 0 {
		t.Errorf("no %q in\n%s", left, rows.Bytes())
	}
}

func TestFields(t *testing.T) {
	clock, err := clock.New()
	if err != nil {
		t.Fatal(err)
	}
	codel := make([]byte, 32) // without ce_mark, as an older kernel sends it
	for i := range codel {
		codel[i] = byte(i)
	}
	for want, s := range map[string]Stats{
		"qdisc backlog_bytes=2i,qlen_packets=1i,bytes=1099511627776i,packets=4i,drops=5i,overlimits=6i,requeues=7i,mono_ns=": {
			QueueLength: 1, Backlog: 2, Bytes: 1 << 40, Packets: 4, Drops: 5, Overlimits: 6, Requeues: 7},
		"requeues=0i,maxpacket=50462976i,count=117835012i,lastcount=185207048i,ldelay_us=252579084i," +
			"drop_overlimit=387323156i,ecn_mark=454695192i,dropping=522067228i,mono_ns=": {Kind: "codel", kind: codel},
		"requeues=0i,lends=0i,borrows=0i,tokens=-1i,ctokens=0i,mono_ns=": {
			Kind: "htb", kind: append(binary.NativeEndian.AppendUint32(make([]byte, 12), 1<<32-1), 0, 0, 0, 0)},
	} {
		rows := row.NewRows(clock)
		rows.Begin(row.NewSeries("qdisc", nil))
		s.AddFields(rows)
		rows.End(time.Now())
		if !strings.Contains(string(rows.Bytes()), want) {
			t.Errorf("%s: no %q in %q", s.Kind, want, rows.Bytes())
		}
	}
}

// TestSettings reads what Linux 6.1 keeps of what tc asked it for.
func TestSettings(t *testing.T) {
	kept, err := os.ReadFile("testdata/settings-6.1.txt") // lines of "words of tc | TCA_OPTIONS in hexadecimal"
	if err != nil {
		t.Fatal(err)
	}
	wanted := map[string]map[string]float64{
		"netem limit 2562 delay 10ms 1ms 25% distribution normal loss random 1% duplicate 2% corrupt 3% rate 80000gbit": {
			"limit_packets": 2562, "delay_ns": 10e6, "jitter_ns": 1e6, "loss": 0.01, "duplicate": 0.02, "corrupt": 0.03, "reorder": 0, "rate_bps": 80e12},
		"netem limit 99 delay 5ms loss gemodel 1% 10% 90% 0.1%": {
			"limit_packets": 99, "delay_ns": 5e6, "jitter_ns": 0, "loss": 0, "duplicate": 0, "corrupt": 0, "reorder": 0, "rate_bps": 0,
			"gemodel_p": 0.01, "gemodel_r": 0.1, "gemodel_loss_bad": 0.9, "gemodel_loss_good": 0.001},
		"netem limit 99 delay 12345us reorder 5% gap 1 rate 8mbit": { // in ticks of 64 ns
			"limit_packets": 99, "delay_ns": 12344960, "jitter_ns": 0, "loss": 0, "duplicate": 0, "corrupt": 0, "reorder": 0.05, "rate_bps": 8e6},
		"pfifo limit 166":    {"limit_packets": 166},
		"bfifo limit 250000": {"limit_bytes": 250000},
		"codel limit 1000 target 5ms interval 100ms ecn": { // in steps of 1024 ns
			"limit_packets": 1000, "target_us": 4999, "interval_us": 99999, "ecn": 1},
		"fq_codel limit 10240 target 2ms interval 50ms noecn": {
			"limit_packets": 10240, "target_us": 1999, "interval_us": 49999, "ecn": 0},
		"pie limit 1000 target 15ms noecn":                                               {"limit_packets": 1000, "target_us": 15000, "ecn": 0},
		"red limit 250000 min 20834 max 62500 avpkt 1000 burst 35 bandwidth 100mbit ecn": {"limit_bytes": 250000, "ecn": 1},
		"cake memlimit 250000":                                                           {"limit_bytes": 250000},
		"htb rate 12345678bit":                                                           {"rate_bps": 12345672, "burst_ns": 12.96e6}, // whole bytes
		"htb rate 40gbit":                                                                {"rate_bps": 40e9, "burst_ns": 3968},
	}
	for line := range strings.Lines(string(kept)) {
		asked, encoded, _ := strings.Cut(strings.TrimSpace(line), " | ")
		options, err := hex.DecodeString(encoded)
		if err != nil {
			t.Fatal(err)
		}
		got, want := readSettings(t, asked, options), wanted[asked]
		if same := maps.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) <= 1e-6*b }); !same {
			t.Errorf("%s: %v, want %v", asked, got, want)
		}
		for short := range options { // of a kernel that has less
			readSettings(t, asked, options[:short])
		}
		delete(wanted, asked)
	}
	if len(wanted) > 0 {
		t.Errorf("not in the file: %v", wanted)
	}
}

// TestSlots reads struct tc_netem_slot, which follows the other attributes only
// where there are slots.
func TestSlots(t *testing.T) {
	options := make([]byte, 24) // struct tc_netem_qopt
	if got := readSettings(t, "netem", options); got["slot_min_ns"] != 0 || len(got) != 3 {
		t.Errorf("%v", got)
	}
	options = binary.NativeEndian.AppendUint16(options, 4+40)
	options = binary.NativeEndian.AppendUint16(options, 12)   // TCA_NETEM_SLOT
	options = binary.NativeEndian.AppendUint64(options, 10e6) // min_delay
	options = binary.NativeEndian.AppendUint64(options, 12e6) // max_delay
	options = append(options, make([]byte, 24)...)            // packets, bytes, and a distribution
	if got := readSettings(t, "netem", options); got["slot_min_ns"] != 10e6 || got["slot_max_ns"] != 12e6 {
		t.Errorf("%v", got)
	}
}

// readSettings returns the fields that a row gets.
func readSettings(t *testing.T, asked string, options []byte) map[string]float64 {
	t.Helper()
	clock, err := clock.New()
	if err != nil {
		t.Fatal(err)
	}
	kind, _, _ := strings.Cut(asked, " ")
	rows := row.NewRows(clock)
	rows.Begin(row.NewSeries("qdisc", nil))
	addSettings(rows, kind, options)
	rows.End(time.Now())
	found := make(map[string]float64)
	d := lineprotocol.NewDecoderWithBytes(rows.Bytes())
	for d.Next() {
		for {
			name, value, err := d.NextField()
			if err != nil {
				t.Fatal(err)
			}
			if name == nil {
				break
			}
			switch number := value.Interface().(type) {
			case int64:
				found[string(name)] = float64(number)
			case float64:
				found[string(name)] = number
			}
		}
	}
	delete(found, "mono_ns")
	return found
}

// TestLayouts: where members of 8 bytes begin, and where structures end, in Linux 6.1.
func TestLayouts(t *testing.T) {
	for kind, want := range map[string]int{"codel": 36, "fq_codel": 40, "pie": 40, "fq_pie": 36, "red": 16, "sfb": 36, "htb": 20, "dualpi2": 48, "rapid": 40} {
		last := extras[kind][len(extras[kind])-1]
		if last.offset+last.width != want {
			t.Errorf("%s ends at %d, not %d", kind, last.offset+last.width, want)
		}
	}
	for kind, list := range extras {
		for _, e := range list {
			if e.offset%e.width != 0 {
				t.Errorf("%s: %s is at %d", kind, e.name, e.offset)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(make([]byte, messageLength))
	f.Add(append(make([]byte, messageLength), 12, 0, attrStats2, 0, 8, 0, statsBasic, 0, 1, 2, 3, 4))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := decode(b); err == nil && len(b) < messageLength {
			t.Errorf("decoded %d bytes to %+v", len(b), m)
		}
	})
}
