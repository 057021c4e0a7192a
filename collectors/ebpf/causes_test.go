package ebpf

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"dumbbell/collectors/clock"
	"dumbbell/collectors/row"
)

// TestCauses: each cause of a reduction is counted, as often as other counters
// of the kernel have it, and no other.
func TestCauses(t *testing.T) {
	const wide = "tc qdisc add dev path root tbf rate 50mbit burst 3000 limit 1000000"
	type counts map[string]int64
	for name, test := range map[string]struct {
		queue   string // of the sender
		rule    string // of the receiver's filter, for data
		run     func(t *testing.T, p *path)
		want    func(t *testing.T, p *path) counts // beside those that are 0
		counted string                             // at least once
	}{
		"lost on the path": {
			wide, "numgen inc mod 60 5 drop", bulk,
			func(t *testing.T, p *path) counts {
				recoveries := p.moved(t, p.sender, "TcpExtTCPSackRecovery", "TcpExtTCPRenoRecovery")
				return counts{"fast_retransmits": recoveries, "signals_fast_retransmit": recoveries}
			},
			"signals_fast_retransmit",
		},
		"dropped by the own queue": {
			"tc qdisc add dev path root tbf rate 50mbit burst 3000 limit 3100", "", bulk,
			func(t *testing.T, p *path) counts {
				return counts{"send_stalls": p.drops(t), "signals_send_stall": p.reductions(t)}
			},
			"signals_send_stall",
		},
		"marked on the path": {
			wide, "numgen inc mod 60 5 %s ecn set ce", bulk,
			func(t *testing.T, p *path) counts { return counts{"signals_ecn": p.reductions(t)} },
			"signals_ecn",
		},
		"nothing arrives for a while": {
			wide, "", blackout,
			func(t *testing.T, p *path) counts { return counts{"signals_timeout": 1} },
			"signals_timeout",
		},
	} {
		for _, family := range []string{"ip", "ip6"} {
			t.Run(name+", "+family, func(t *testing.T) {
				complete(t, func(t *testing.T) (problems []string) {
					p := newPath(t, family)
					if test.rule != "" {
						rule := strings.ReplaceAll(test.rule, "%s", family)
						p.receiver.run(t, "nft add rule "+family+" t c meta l4proto tcp meta length gt 1000 "+rule)
					}
					p.sender.run(t, test.queue)
					test.run(t, p)
					got, want := p.values(t), test.want(t, p)
					if got[test.counted] == 0 {
						problems = append(problems, test.counted+" is 0")
					}
					want["segs_seen"] = p.info(t, "segs_in")
					want["signals_other"] = p.moved(t, p.sender, "TcpExtTCPLossProbeRecovery")
					want["dup_acks_in"] = p.moved(t, p.receiver, "TcpExtTCPOFOQueue", "TcpExtTCPDSACKOldSent", "TcpExtTCPDSACKOfoSent")
					for name, v := range got {
						if strings.HasPrefix(name, "signals_") {
							want["congestion_signals"] += v
						}
					}
					for name, v := range got {
						if !strings.HasPrefix(name, "rtt_") && v != want[name] {
							problems = append(problems, fmt.Sprintf("%s is %d, want %d", name, v, want[name]))
						}
					}
					t.Log(got)
					return problems
				})
			})
		}
	}
}

func bulk(t *testing.T, p *path) { p.transfer(t, 500_000) }

// blackout loses all packets until a second timeout.
func blackout(t *testing.T, p *path) {
	p.transfer(t, 100_000)
	p.receiver.run(t, "nft insert rule "+p.family()+" t c meta l4proto tcp drop")
	_, err := p.client.Write(make([]byte, 10_000))
	check(t, err)
	for deadline := time.Now().Add(10 * time.Second); p.info(t, "backoff") < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no second timeout")
		}
	}
	p.receiver.run(t, "nft flush chain "+p.family()+" t c")
	_, err = io.CopyN(io.Discard, p.server, 10_000)
	check(t, err)
	p.transfer(t, 100_000)
}

// reductions is how often the sender entered CWR, by the kernel's own trace.
func (p *path) reductions(t *testing.T) int64 {
	clock, err := clock.New()
	check(t, err)
	rows := row.NewRows(clock)
	check(t, p.events.Finish(rows))
	return int64(strings.Count(string(rows.Bytes()), "tcp_event,event=ca_state ca_state=2i"))
}

// complete repeats a test until it finds nothing wrong: a kernel may skip
// programs, as where one would interrupt itself.
func complete(t *testing.T, test func(t *testing.T) (problems []string)) {
	for attempt := range 20 {
		var problems []string
		if !t.Run(fmt.Sprint("attempt ", attempt), func(t *testing.T) {
			problems = test(t)
			t.Log(strings.Join(problems, "; "))
		}) {
			return
		}
		if len(problems) == 0 {
			return
		}
	}
	t.Error("no attempt found all")
}
