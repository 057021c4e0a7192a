package cpu

import (
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"dumbbell/collectors/clock"
	"dumbbell/collectors/row"
)

func newRows(t testing.TB) *row.Rows {
	t.Helper()
	clock, err := clock.New()
	if err != nil {
		t.Fatal(err)
	}
	return row.NewRows(clock)
}

// TestHere: each CPU has a row, and the time of one that works passes.
func TestHere(t *testing.T) {
	s, err := NewSource(row.Tags{"host": "here"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	user := func() (sum, cpus int) {
		rows := newRows(t)
		if err := s.Sample(rows); err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`cpu_core,cpu=\d+,host=here user_ms=(\d+)i,nice_ms=(\d+)i,`).FindAllSubmatch(rows.Bytes(), -1) {
			for _, text := range m[1:] { // tests may run niced
				n, _ := strconv.Atoi(string(text))
				sum += n
			}
			cpus++
		}
		return sum, cpus
	}
	before, _ := user()
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
	}
	after, cpus := user()
	if cpus < runtime.NumCPU() || after-before < 50 {
		t.Errorf("%d CPUs, %d ms of work", cpus, after-before)
	}
}

func TestParse(t *testing.T) {
	var s Source
	for _, err := range []error{
		s.parseStat([]byte("cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 4 5 6 7 8 0 0\ncpu2 10 20 30 40 50 60 70 80 0 0\nintr 5\n")),
		s.parseSoftirqs([]byte("       CPU0 CPU2\n  HI: 1 1\nNET_TX: 11 12\nNET_RX: 21 22\n")),
		s.parseSoftnet([]byte("0000000a 00000001 00000002 0 0 0 0 0 0 0 0 0 00000000 0 0\n000000ff 00000000 00000003 0 0 0 0 0 0 0 0 0 00000002 0 0\n")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := cpu{time: [8]int64{100, 200, 300, 400, 500, 600, 700, 800}, present: true, rx: 22, tx: 12, softnet: [3]int64{255, 0, 3}, series: "cpu_core,cpu=2"}
	if len(s.cpus) != 3 || s.cpus[2] != want || s.cpus[1].present {
		t.Errorf("%+v", s.cpus)
	}
}

func FuzzParse(f *testing.F) {
	for _, path := range []string{"/proc/stat", "/proc/softirqs", "/proc/net/softnet_stat"} {
		if b, err := os.ReadFile(path); err == nil {
			f.Add(string(b))
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Count(text, "\n") > 100 {
			return
		}
		var s Source
		s.parseStat([]byte(text))
		s.parseSoftirqs([]byte(text))
		s.parseSoftnet([]byte(text))
	})
}
