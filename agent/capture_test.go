package main

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"dumbbell/agent/kind"
	"dumbbell/agent/plan"
)

// capturePlan captures an interface, and does nothing else.
func capturePlan(t *testing.T, device string) *plan.Plan {
	t.Helper()
	if _, err := exec.LookPath("tcpdump"); err != nil {
		t.Skip("tcpdump is not installed: apt-get install tcpdump")
	}
	p := loopbackPlan(t)
	p.Flows = nil
	p.Hosts = map[string]plan.HostPlan{"here": {Actions: []plan.Action{{At: -time.Second, Kind: "capture", Name: device}}}}
	return p
}

// packets are those of a capture as tcpdump writes it, in the byte order of
// this machine and with nanoseconds.
func packets(t *testing.T, path string) (all [][]byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) < 24 || binary.NativeEndian.Uint32(b) != 0xa1b23c4d {
		t.Fatalf("%s is no capture with nanoseconds: % x", path, b[:min(len(b), 24)])
	}
	if snap := binary.NativeEndian.Uint32(b[16:]); snap != kind.SnapLength {
		t.Errorf("%d bytes of each packet, want %d", snap, kind.SnapLength)
	}
	for b = b[24:]; len(b) > 0; {
		if len(b) < 16 || len(b) < 16+int(binary.NativeEndian.Uint32(b[8:])) {
			t.Fatalf("%s ends within a packet", path)
		}
		end := 16 + int(binary.NativeEndian.Uint32(b[8:]))
		all = append(all, b[16:end])
		b = b[end:]
	}
	return all
}

func TestCapture(t *testing.T) {
	t.Parallel()
	a := startAgent(t, capturePlan(t, "lo"))
	t0 := a.start()
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	to := netip.MustParseAddrPort("127.0.0.77:9") // which nothing else uses
	time.Sleep(time.Until(time.Unix(0, t0)))
	for range 3 {
		if _, err := conn.WriteTo(make([]byte, 1000), net.UDPAddrFromAddrPort(to)); err != nil {
			t.Fatal(err)
		}
	}
	a.end("done", 0)
	found := packets(t, filepath.Join(a.dir, "capture-lo.pcap"))
	told := a.one("capture")
	if told.Name != "lo" || told.Packets != len(found) || told.Dropped != 0 {
		t.Errorf("%d packets; the agent tells %+v", len(found), told)
	}
	var sent int
	for _, packet := range found {
		if bytes.Equal(packet[14+16:14+20], to.Addr().AsSlice()) { // the destination in the IPv4 header
			sent++
			if len(packet) != kind.SnapLength {
				t.Errorf("%d bytes of a datagram, want %d", len(packet), kind.SnapLength)
			}
		}
	}
	if sent != 3 {
		t.Errorf("%d of 3 datagrams captured", sent)
	}
}

func TestCaptureOfNoInterface(t *testing.T) {
	t.Parallel()
	a := startAgent(t, capturePlan(t, "nothing0"))
	a.start()
	a.end("failed", 1, "capture nothing0: ", "No such device")
	if events := a.events("capture"); len(events) > 0 {
		t.Errorf("told of a capture that there is not: %+v", events)
	}
}
