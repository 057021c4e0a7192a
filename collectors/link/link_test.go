package link

import (
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"dumbbell/collectors/clock"
	"dumbbell/collectors/row"

	"golang.org/x/sys/unix"
)

// TestAgainstIP sends over the loopback of an own network namespace and
// compares with what ip reads.
func TestAgainstIP(t *testing.T) {
	if unix.Geteuid() != 0 {
		t.Skip("needs root for a network namespace")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs iproute2: ", err)
	}
	runtime.LockOSThread() // never unlocked: the namespace ends with the thread
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal("unsharing the network namespace: ", err)
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c, err := net.Dial("udp4", "127.0.0.1:9")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 7 {
		c.Write(make([]byte, 1000))
	}
	s, err := NewSource(row.Tags{"host": "here"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	clock, err := clock.New()
	if err != nil {
		t.Fatal(err)
	}
	rows := row.NewRows(clock)
	if err := s.Sample(rows); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("ip", "-s", "-j", "link", "show", "lo").Output()
	if err != nil {
		t.Fatal(err)
	}
	var want []struct {
		Stats struct {
			RX, TX struct{ Bytes, Packets int64 }
		} `json:"stats64"`
	}
	if err := json.Unmarshal(out, &want); err != nil || len(want) != 1 || want[0].Stats.TX.Packets < 7 {
		t.Fatalf("%v: %s", err, out)
	}
	w := want[0].Stats
	expected := fmt.Sprintf("link,dev=lo,host=here rx_packets=%di,tx_packets=%di,rx_bytes=%di,tx_bytes=%di,",
		w.RX.Packets, w.TX.Packets, w.RX.Bytes, w.TX.Bytes)
	if got := string(rows.Bytes()); !strings.HasPrefix(got, expected) || !strings.Contains(got, "rx_nohandler=0i") {
		t.Errorf("%s does not begin with %s", got, expected)
	}
}
