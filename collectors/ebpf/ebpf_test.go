package ebpf

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"dumbbell/collectors/clock"
	"dumbbell/collectors/row"
	"dumbbell/collectors/tcpinfo"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// TestRTT: each exchange gives a sample, no longer than itself; the smallest is
// what the kernel has as min_rtt, and their mean moves as the kernel's srtt.
func TestRTT(t *testing.T) {
	complete(t, func(t *testing.T) (problems []string) {
		const n = 200
		p := newPath(t, "ip")
		var sum, least, most, longest, srtt, before int64
		p.exchange(t, n, func(took time.Duration) {
			longest = max(longest, took.Microseconds())
			v := p.values(t)
			last := v["rtt_last_us"]
			if v["rtt_samples"] != before {
				before = v["rtt_samples"]
				sum, most = sum+last, max(most, last)
				if least == 0 || last < least {
					least = last
				}
				srtt += last - srtt>>3 // eight times the mean, from 0: the first is soon forgotten
			}
		})
		got := p.values(t)
		kernel := p.info(t, "srtt_us")
		t.Log(got, "srtt", kernel, srtt>>3, "longest exchange", longest)
		// The last sample is told by the next segment.
		if got["rtt_samples"] < n-1 || got["rtt_sum_us"] != sum || got["rtt_max_us"] != most || got["rtt_min_us"] != least || most > longest {
			problems = append(problems, fmt.Sprintf("%v; own count: sum %d, min %d, max %d, longest exchange %d", got, sum, least, most, longest))
		}
		if minimum := p.info(t, "min_rtt_us"); minimum != least {
			problems = append(problems, fmt.Sprintf("the kernel's minimum is %d, not %d", minimum, least))
		}
		if d := kernel - srtt>>3; d < -2 || d > 2 {
			problems = append(problems, fmt.Sprintf("the kernel's mean is %d, that of the samples %d", kernel, srtt>>3))
		}
		return problems
	})
}

// TestRows: rows of a connection have its counters, the last one too, and then
// nothing is kept of it.
func TestRows(t *testing.T) {
	flow, client, server := loopback(t)
	counters := begin(t, func() (*Counters, error) { return OpenFlows([]tcpinfo.Flow{flow}) })
	id := cookie(t, flow.Tuple)
	flows, err := tcpinfo.NewFlows([]tcpinfo.Flow{flow})
	check(t, err)
	defer flows.Close()
	flows.Extend(unclosed{counters})
	clock, err := clock.New()
	check(t, err)
	rows := row.NewRows(clock)
	pingPong(t, client, server, 10)
	check(t, flows.Sample(rows))
	check(t, server.Close())
	check(t, client.Close())
	for deadline := time.Now().Add(5 * time.Second); flows.Open() > 0; time.Sleep(time.Millisecond) {
		check(t, flows.Finish(rows))
		if time.Now().After(deadline) {
			t.Fatal("the connection does not end")
		}
	}
	lines := strings.Split(strings.TrimSpace(string(rows.Bytes())), "\n")
	if len(lines) != 2 || !strings.Contains(lines[1], "final=true") {
		t.Fatalf("%d rows: %s", len(lines), rows.Bytes())
	}
	for _, line := range lines {
		for _, name := range Fields[:rttLast] {
			if !strings.Contains(line, ","+name+"=") {
				t.Errorf("no %s in %s", name, line)
			}
		}
	}
	if v, err := counters.Read(id); v != nil || err != nil {
		t.Errorf("%v is kept, %v", v, err)
	}
}

type unclosed struct{ *Counters }

func (unclosed) Close() error { return nil }

// TestOthers: what is not asked for is not counted.
func TestOthers(t *testing.T) {
	p := newPath(t, "ip")
	p.transfer(t, 10_000)
	var conn *tcpinfo.Conn
	p.receiver.do(t, func() (err error) { conn, err = tcpinfo.Dial(); return err })
	defer conn.Close()
	var there tcpinfo.Sample
	check(t, conn.Get(tcpinfo.TCP, p.tuple.Mirror(), &there))
	if v, err := p.counters.Read(there.Cookie); v != nil || err != nil {
		t.Errorf("the other end is counted, in another network namespace: %v, %v", v, err)
	}
}

// TestTooMany: connections beyond those that can be counted are an error, and
// not without counters.
func TestTooMany(t *testing.T) {
	flow, client, server := loopback(t)
	spec, err := specification([]uint16{flow.Tuple.Local.Port()}, 1)
	check(t, err)
	spec.Maps["connections"].MaxEntries = 1
	counters := begin(t, func() (*Counters, error) { return load(spec, fallback...) })
	pingPong(t, client, server, 100)
	_, here := counters.Read(cookie(t, flow.Tuple))
	_, there := counters.Read(cookie(t, flow.Tuple.Mirror()))
	refused := errors.Join(here, there)
	if refused == nil || !strings.Contains(refused.Error(), "more than 1 conn") {
		t.Error(refused)
	}
}

// TestPrivileges: two capabilities are enough, and without them it is said
// which there should be.
func TestPrivileges(t *testing.T) {
	begin(t, func() (*Counters, error) { return OpenPorts(nil) })
	for name, test := range map[string]struct {
		capabilities uint64
		want         error
	}{
		"none":                    {0, ErrUnavailable},
		"CAP_BPF":                 {1 << unix.CAP_BPF, ErrUnavailable},
		"CAP_BPF and CAP_PERFMON": {1<<unix.CAP_BPF | 1<<unix.CAP_PERFMON, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var c *Counters
			err := onThread(func() (err error) {
				has := [2]unix.CapUserData{
					{Effective: uint32(test.capabilities), Permitted: uint32(test.capabilities)},
					{Effective: uint32(test.capabilities >> 32), Permitted: uint32(test.capabilities >> 32)},
				}
				check(t, unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &has[0]))
				c, err = OpenPorts(nil)
				return err
			})
			if err == nil {
				defer c.Close()
			}
			if !errors.Is(err, test.want) || err != nil && !strings.Contains(err.Error(), "CAP_BPF and CAP_PERFMON") {
				t.Errorf("error %v, want %v", err, test.want)
			}
		})
	}
}

// TestObjectIsOfTheSource: each line that counters.o says that it was made of is
// that line of counters.c, and the counters have the same names.
func TestObjectIsOfTheSource(t *testing.T) {
	source, err := os.ReadFile("counters.c")
	check(t, err)
	lines := strings.Split(string(source), "\n")
	spec, err := specification(nil, 0)
	check(t, err)
	seen := 0
	for _, p := range spec.Programs {
		for _, i := range p.Instructions {
			line, ok := i.Source().(*btf.Line)
			if !ok || line.LineNumber() == 0 {
				continue // made by the compiler
			}
			seen++
			if n := int(line.LineNumber()); n > len(lines) || lines[n-1] != line.Line() {
				t.Fatalf("counters.o is not of this counters.c, at line %d: make ebpf", n)
			}
		}
	}
	if seen < 100 {
		t.Errorf("counters.o tells only %d lines of its source", seen)
	}
	members := spec.Maps["connections"].Value.(*btf.Struct).Members[0].Type.(*btf.Struct).Members
	var names []string
	for _, m := range members {
		names = append(names, m.Name)
	}
	if !slices.Equal(names, Fields[:]) {
		t.Errorf("counters.o counts %v, Fields are %v", names, Fields)
	}
}

// TestObjectIsReproducible: the compiler that make ebpf uses gives the same bytes.
func TestObjectIsReproducible(t *testing.T) {
	for _, tool := range []string{"make", "clang-14", "llvm-strip-14", "/usr/include/bpf/bpf_helpers.h"} {
		_, err := exec.LookPath(tool)
		if _, missing := os.Stat(tool); err != nil && missing != nil {
			t.Skip(err)
		}
	}
	made := filepath.Join(t.TempDir(), "counters.o")
	out, err := exec.Command("make", "--no-print-directory", "-C", "../..", "ebpf", "EBPF_OBJECT="+made).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	again, err := os.ReadFile(made)
	check(t, err)
	if !bytes.Equal(again, object) {
		t.Error("counters.o is not what make ebpf makes of counters.c")
	}
}

// BenchmarkSegment is what the kernel spends in the programs at each segment
// that arrives, of a connection that is counted and of one that is not.
func BenchmarkSegment(b *testing.B) {
	for name, open := range map[string]func(tcpinfo.Flow) (*Counters, error){
		"counted":     func(f tcpinfo.Flow) (*Counters, error) { return OpenFlows([]tcpinfo.Flow{f}) },
		"not counted": func(tcpinfo.Flow) (*Counters, error) { return OpenFlows(nil) },
	} {
		b.Run(name, func(b *testing.B) {
			flow, client, server := loopback(b)
			counters := begin(b, func() (*Counters, error) { return open(flow) })
			stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
			check(b, err)
			defer stats.Close()
			for b.Loop() {
				pingPong(b, client, server, 1)
			}
			s, err := counters.collection.Programs["tcp_probe"].Stats()
			check(b, err)
			b.ReportMetric(float64(s.Runtime.Nanoseconds())/float64(s.RunCount), "ns/segment")
		})
	}
}

// BenchmarkRead is what a sample of one connection spends on its counters.
func BenchmarkRead(b *testing.B) {
	flow, client, server := loopback(b)
	counters := begin(b, func() (*Counters, error) { return OpenFlows([]tcpinfo.Flow{flow}) })
	pingPong(b, client, server, 1)
	id := cookie(b, flow.Tuple)
	b.ReportAllocs()
	for b.Loop() {
		if v, err := counters.Read(id); v == nil || err != nil {
			b.Fatal(v, err)
		}
	}
}
