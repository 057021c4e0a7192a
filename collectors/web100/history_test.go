package web100

import (
	"net"
	"regexp"
	"strconv"
	"testing"
	"time"

	"dumbbell/collectors/tcpinfo"
)

// TestChanges: what a connection does between states is told apart by what
// comes between them.
func TestChanges(t *testing.T) {
	type step = func(*history)
	to := func(state int64) step { return func(h *history) { h.change(state) } }
	segment := func(una int64) step { return func(h *history) { h.segment(probe{una: una}) } }
	for name, test := range map[string]struct {
		steps []step
		want  map[string]int64 // beside those that are 0
	}{
		"nothing":                      {[]step{to(disorder), segment(2), to(open)}, nil},
		"a stall":                      {[]step{to(cwr), segment(2), to(open)}, map[string]int64{"CongestionSignals": 1, "SendStall": 1}},
		"a stall that loses":           {[]step{to(cwr), segment(2), to(recovery)}, map[string]int64{"CongestionSignals": 1, "SendStall": 1, "FastRetran": 1}},
		"a loss that a probe repaired": {[]step{to(cwr), to(open)}, map[string]int64{"CongestionSignals": 1}},
		"fast retransmit":              {[]step{to(disorder), segment(2), to(recovery), segment(3), to(open)}, map[string]int64{"CongestionSignals": 1, "FastRetran": 1}},
		"a timeout that repeats":       {[]step{to(loss), to(loss), to(loss)}, map[string]int64{"CongestionSignals": 1, "Timeouts": 1, "AbruptTimeouts": 1, "SubsequentTimeouts": 2}},
		"one after duplicate ACKs":     {[]step{to(disorder), segment(1), to(loss)}, map[string]int64{"CongestionSignals": 1, "Timeouts": 1}},
		"one after progress in Loss":   {[]step{to(loss), segment(1), segment(2), to(loss)}, map[string]int64{"CongestionSignals": 2, "Timeouts": 2, "AbruptTimeouts": 1}},
		"one without it":               {[]step{to(loss), segment(1), to(recovery), segment(1), to(loss), segment(1)}, map[string]int64{"CongestionSignals": 2, "FastRetran": 1, "Timeouts": 1, "AbruptTimeouts": 1, "SubsequentTimeouts": 1}},
		"one in Recovery":              {[]step{to(recovery), segment(1), to(loss)}, map[string]int64{"CongestionSignals": 1, "FastRetran": 1, "Timeouts": 1}},
	} {
		c := Connection{history: history{began: true, expiredAt: -1}, info: make(tcpinfo.Info, 232)}
		for _, step := range append(append([]step{segment(1)}, test.steps...), segment(9)) {
			step(&c.history)
		}
		for _, variable := range []string{"CongestionSignals", "FastRetran", "Timeouts", "AbruptTimeouts", "SubsequentTimeouts", "SendStall"} {
			if got, grade := value(&c, variable); got != test.want[variable] || grade == Unavailable {
				t.Errorf("%s: %s is %d (%v), want %d", name, variable, got, grade, test.want[variable])
			}
		}
	}
}

func value(c *Connection, name string) (int64, Grade) {
	for i := range Variables {
		if Variables[i].Name == name {
			return Variables[i].of(c)
		}
	}
	panic(name)
}

// TestSegments: what is counted from one segment to the next.
func TestSegments(t *testing.T) {
	c := Connection{history: history{began: true}, info: make(tcpinfo.Info, 232)}
	set(c.info, "snd_mss", 1000)
	for _, p := range []probe{
		{nxt: 100, una: 0, cwnd: 10, ssthresh: 20},  // moves snd_una
		{nxt: 100, una: 50, cwnd: 11, ssthresh: 20}, // a duplicate, after slow start
		{nxt: 100, una: 50, cwnd: 20, ssthresh: 20, data: 1},
		{nxt: 100, una: 50, cwnd: 21, ssthresh: 20}, // acknowledges all
		{nxt: 100, una: 100, cwnd: 8, ssthresh: 20},
		{nxt: 100, una: 100, cwnd: 8, ssthresh: 20, receiveWindow: 7}, // nothing was outstanding
	} {
		c.history.segment(p)
	}
	for name, want := range map[string]int64{
		"DupAcksIn": 1, "SlowStart": 2, "CongAvoid": 1, "OtherReductions": 1, "MaxCwnd": 21_000, "CurRwinSent": 7, "SendStall": 0,
	} {
		if got, grade := value(&c, name); got != want || grade != Approximate {
			t.Errorf("%s is %d (%v), want %d", name, got, grade, want)
		}
	}
	set(c.info, "options", 8)
	if _, grade := value(&c, "SendStall"); grade != Unavailable {
		t.Error("of a connection with ECN, CWR is taken for a stall")
	}
	c.TraceLost()
	for _, name := range []string{"DupAcksIn", "SlowStart", "FastRetran", "SendStall", "AbruptTimeouts"} {
		if got, grade := value(&c, name); grade != Unavailable {
			t.Errorf("%s is %d without a whole trace", name, got)
		}
	}
}

// --- real connections -----------------------------------------------------------

// TestLosses: a router drops, and then lets nothing through for a while. What
// the trace counts is what the kernel counts of its only connection, and what
// is seen on the wire.
func TestLosses(t *testing.T) {
	b := newTestbed(t)
	b.router.sh(t, "tc qdisc add dev right root tbf rate 20mbit burst 6k limit 12k")
	flows := b.flows(1)
	wire := b.capture()
	connections := b.followed(flows, func() {
		client := b.dial(flows[0])
		send(client, 1500*time.Millisecond)
		b.router.sh(t, "ip link set right down")
		send(client, 800*time.Millisecond)
		b.router.sh(t, "ip link set right up")
		send(client, time.Second)
		awaitLastACK(t, client) // after the own FIN the kernel has no more probes
	})
	c, counted := connections[0], b.counters()
	variable := func(name string) int64 { n, _ := value(c, name); return n }
	fast, timeouts, probes := counted["TcpExtTCPSackRecovery"], variable("Timeouts"), counted["TcpExtTCPLossProbeRecovery"]
	if fast == 0 || timeouts == 0 {
		t.Errorf("%d fast retransmits and %d timeouts are no test", fast, timeouts)
	}
	if got := variable("FastRetran"); got != fast {
		t.Errorf("%d fast retransmits, the kernel counts %d", got, fast)
	}
	if h := c.history; h.timeouts != timeouts || h.followingTimeouts != variable("SubsequentTimeouts") { // as tcp_info has them
		t.Errorf("%d timeouts and %d that followed, the kernel counts %d and %d", h.timeouts, h.followingTimeouts, timeouts, variable("SubsequentTimeouts"))
	}
	// A timeout in Recovery has no reduction of its own.
	if got, most := variable("CongestionSignals"), fast+timeouts+probes; got > most || got < most-timeouts+variable("AbruptTimeouts") {
		t.Errorf("%d signals, of %d fast retransmits, %d timeouts and %d losses that a probe repaired", got, fast, timeouts, probes)
	}
	if stalls, _ := value(c, "SendStall"); stalls != 0 {
		t.Errorf("%d stalls, of drops by a router", stalls)
	}
	duplicates := variable("DupAcksIn")
	// Those that find the socket busy may become one (tcp_add_backlog), and the last cannot be judged.
	if seen := wire(); seen < 20 || duplicates > seen || duplicates < seen*98/100-1 {
		t.Errorf("%d duplicate ACKs, %d were seen on the wire", duplicates, seen)
	}
	if variable("SlowStart") == 0 {
		t.Error("no slow start")
	}
	t.Logf("%d duplicate ACKs, %d fast retransmits, %d timeouts", duplicates, fast, timeouts)
}

// TestSendStalls: the sender's own queue drops. Mostly TCP is told of it at
// once; what it is not told of is lost to it as on the path.
func TestSendStalls(t *testing.T) {
	b := newTestbed(t)
	b.sender.sh(t, "tc qdisc add dev net root handle 1: htb default 1",
		"tc class add dev net parent 1: classid 1:1 htb rate 50mbit quantum 3000",
		"tc qdisc add dev net parent 1:1 handle 2: pfifo limit 3")
	flows := b.flows(4)
	connections := b.followed(flows, func() {
		done := make(chan struct{})
		for _, f := range flows {
			go func(client net.Conn) {
				send(client, 1500*time.Millisecond)
				awaitLastACK(t, client) // what happens later, only the kernel counts
				done <- struct{}{}
			}(b.dial(f))
		}
		for range flows {
			<-done
		}
	})
	m := regexp.MustCompile(`dropped (\d+)`).FindStringSubmatch(b.sender.sh(t, "tc -s qdisc show dev net parent 1:1"))
	dropped, err := strconv.ParseInt(m[1], 10, 64)
	check(t, err)
	var stalls, fast int64
	for _, c := range connections {
		n, _ := value(c, "SendStall")
		stalls += n
		n, _ = value(c, "FastRetran")
		fast += n
	}
	if dropped == 0 || stalls <= fast || stalls+fast > dropped {
		t.Errorf("%d stalls and %d fast retransmits, of %d drops by the own queue", stalls, fast, dropped)
	}
	if counted := b.counters()["TcpExtTCPSackRecovery"]; fast != counted {
		t.Errorf("%d fast retransmits, the kernel counts %d", fast, counted)
	}
	t.Logf("%d stalls and %d fast retransmits of %d drops", stalls, fast, dropped)
}
