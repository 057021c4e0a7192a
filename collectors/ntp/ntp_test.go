package ntp

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dumbbell/collectors/clock"
	"dumbbell/collectors/row"
)

func newRows(t *testing.T) *row.Rows {
	t.Helper()
	clock, err := clock.New()
	if err != nil {
		t.Fatal(err)
	}
	return row.NewRows(clock)
}

// TestWithoutChrony: the kernel's row is there, none is made up.
func TestWithoutChrony(t *testing.T) {
	l, err := net.ListenPacket("udp", "127.0.0.1:0") // nobody answers here
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Ask(l.LocalAddr().String()); err == nil {
		t.Error("an answer from nobody")
	}
	s := NewSource(row.Tags{"host": "here"}, l.LocalAddr().String())
	defer s.Close()
	rows := newRows(t)
	if err := s.Sample(rows); err != nil {
		t.Fatal(err)
	}
	if got := string(rows.Bytes()); rows.Len() != 1 || !strings.HasPrefix(got, "clock,host=here,source=kernel synchronised=") {
		t.Errorf("%d rows: %s", rows.Len(), got)
	}
	if err := s.Sample(rows); err != nil || rows.Len() != 1 {
		t.Errorf("%v, %d rows within a second", err, rows.Len())
	}
}

// TestChrony asks a chronyd of its own, which leaves the clock alone.
func TestChrony(t *testing.T) {
	chronyd, err := exec.LookPath("chronyd")
	if err != nil {
		t.Skip("needs chronyd: ", err)
	}
	const address = "127.0.0.1:20323"
	dir := t.TempDir()
	config := filepath.Join(dir, "chrony.conf")
	text := "port 0\ncmdport 20323\nbindcmdaddress 127.0.0.1\nlocal stratum 7\npidfile " + filepath.Join(dir, "pid") + "\n"
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(chronyd, "-x", "-d", "-f", config, "-u", "root")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, err = Ask(address); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	s := NewSource(nil, address)
	defer s.Close()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		rows := newRows(t)
		s.asked = time.Time{}
		if err := s.Sample(rows); err != nil {
			t.Fatal(err)
		}
		if got := string(rows.Bytes()); strings.Contains(got, "clock,source=chrony ") {
			for _, want := range []string{"stratum=7i", "offset_ns=", "root_dispersion_ns=", "synchronised=true"} {
				if !strings.Contains(got, want) {
					t.Errorf("no %s in %s", want, got)
				}
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("no row of chrony within 10 s")
		}
	}
}
