package trace

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"dumbbell/collectors/row"
	"dumbbell/collectors/tcpinfo"

	"golang.org/x/sys/unix"
)

var record = flag.Bool("record", false, "record this machine's formats and a page of its trace into testdata")

// recorded has what a kernel wrote, in a directory for each release.
const recorded = "testdata/"

// newest is the one that fuzzing and benchmarks begin with.
const newest = recorded + "6.18/"

func TestRecord(t *testing.T) {
	if !*record {
		t.Skip("only with -record")
	}
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	check(t, err)
	recorded := recorded + regexp.MustCompile(`^\d+\.\d+`).FindString(string(release)) + "/"
	clock := newClock(t)
	s, client, server := connected(t, clock, "127.0.0.1", false)
	transfer(t, client, server, 500_000)
	check(t, os.MkdirAll(recorded, 0o755))
	for _, e := range events {
		text, err := os.ReadFile(filepath.Join(s.tracing.by.(*instance).path, "events", e, "format"))
		check(t, err)
		check(t, os.WriteFile(recorded+filepath.Base(e)+".format", text, 0o644))
	}
	for _, fd := range s.tracing.pages {
		for {
			page := make([]byte, 4096)
			n, err := unix.Read(fd, page)
			if err != nil || n == 0 {
				break
			}
			s.rows = row.NewRows(clock)
			_, err = readPage(page[:n], s.handle)
			check(t, err)
			if strings.Count(string(s.rows.Bytes()), "tcp_probe,") > 5 {
				check(t, os.WriteFile(recorded+"page.bin", page[:n], 0o644))
				return
			}
		}
	}
	t.Fatal("nothing was traced")
}

// TestRecordedPage decodes what kernels wrote.
func TestRecordedPage(t *testing.T) {
	releases, err := os.ReadDir(recorded)
	check(t, err)
	for _, release := range releases {
		t.Run(release.Name(), func(t *testing.T) { testRecordedPage(t, recorded+release.Name()+"/") })
	}
}

func testRecordedPage(t *testing.T, recorded string) {
	text, err := os.ReadFile(recorded + "tcp_probe.format")
	check(t, err)
	f, err := parseFormat(text)
	check(t, err)
	page, err := os.ReadFile(recorded + "page.bin")
	check(t, err)
	probes, last := 0, time.Duration(0)
	lost, err := readPage(page, func(at time.Duration, data []byte) {
		if at < last {
			t.Errorf("time went back from %v to %v", last, at)
		}
		last = at
		if id, _ := f.integer(data, "common_type"); id != int64(f.id) {
			return
		}
		probes++
		local, remote := f.address(data, "s"), f.address(data, "d")
		if local.Addr() != netip.MustParseAddr("127.0.0.1") || remote.Addr() != local.Addr() || local.Port() == remote.Port() {
			t.Errorf("from %v to %v", local, remote)
		}
		if cwnd, ok := f.integer(data, "snd_cwnd"); !ok || cwnd < 2 || cwnd > 10000 {
			t.Errorf("snd_cwnd %d", cwnd)
		}
		if _, ok := f.integer(data, "no_such_field"); ok {
			t.Error("a field that does not exist has a value")
		}
	})
	if err != nil || lost != 0 || probes < 3 {
		t.Errorf("%d probes, %d lost, %v", probes, lost, err)
	}
}

// TestReasonsAreFoundByName in three kernels, which number them differently.
func TestReasonsAreFoundByName(t *testing.T) {
	for release, want := range map[string]struct {
		qdiscDrop, paws int64
		filter          string
	}{
		"6.1":  {45, 26, "reason != 1"},
		"6.12": {57, 35, "reason != 2"},
		"6.18": {64, 36, "reason != 2"},
	} {
		text, err := os.ReadFile(recorded + release + "/kfree_skb.format")
		check(t, err)
		f, err := parseFormat(text)
		check(t, err)
		if f.reasons[want.qdiscDrop] != "QDISC_DROP" || f.reasons[want.paws] != "TCP_RFC7323_PAWS" || realDrops(f) != want.filter {
			t.Errorf("%s: %v, filter %q", release, f.reasons, realDrops(f))
		}
	}
}

func FuzzPage(f *testing.F) {
	page, err := os.ReadFile(newest + "page.bin")
	check(f, err)
	text, err := os.ReadFile(newest + "tcp_probe.format")
	check(f, err)
	format, err := parseFormat(text)
	check(f, err)
	f.Add(page)
	f.Add(page[:100])
	f.Fuzz(func(t *testing.T, page []byte) {
		readPage(page, func(_ time.Duration, data []byte) {
			format.address(data, "s")
			format.integer(data, "srtt")
		})
	})
}

func FuzzFormat(f *testing.F) {
	for _, e := range events {
		text, err := os.ReadFile(newest + filepath.Base(e) + ".format")
		check(f, err)
		f.Add(text, text)
	}
	f.Fuzz(func(t *testing.T, text, data []byte) {
		if format, err := parseFormat(text); err == nil {
			format.address(data, "s")
			for name := range format.fields {
				format.integer(data, name)
			}
			realDrops(format)
		}
	})
}

func BenchmarkRecords(b *testing.B) {
	page, err := os.ReadFile(newest + "page.bin")
	check(b, err)
	text, err := os.ReadFile(newest + "tcp_probe.format")
	check(b, err)
	f, err := parseFormat(text)
	check(b, err)
	s := &Source{clock: newClock(b), flows: make(map[tcpinfo.Tuple]*flow), rows: row.NewRows(newClock(b))}
	s.handlers = map[uint16]func(time.Duration, []byte){f.id: s.handler("tcp/tcp_probe", f)}
	series := map[string]row.Series{"tcp/tcp_probe": row.NewSeries("tcp_probe", row.Tags{"flow": "0"})}
	_, err = readPage(page, func(_ time.Duration, data []byte) {
		if id, _ := f.integer(data, "common_type"); id == int64(f.id) {
			s.flows[tcpinfo.Tuple{Local: f.address(data, "s"), Remote: f.address(data, "d")}] = &flow{series: series}
		}
	})
	check(b, err)
	b.ReportAllocs()
	for b.Loop() {
		s.rows.Reset()
		readPage(page, s.keep)
		for _, r := range s.pending {
			s.handle(r.at, s.buffer[r.start:r.end])
		}
		s.forget(len(s.pending))
	}
	b.ReportMetric(float64(s.seen)/b.Elapsed().Seconds(), "records/s")
}
