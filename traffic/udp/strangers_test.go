package udp

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"
)

// TestStrangersAreNotHeard has others send to a receiver from before its sender
// does. It gets what comes from the sender's port alone, and counts that apart if it is not of the flow.
func TestStrangersAreNotHeard(t *testing.T) {
	for _, address := range []string{"127.0.0.1", "::1"} {
		t.Run(address, func(t *testing.T) {
			t.Parallel()
			here := net.ParseIP(address)
			sender, err := net.ListenUDP("udp", &net.UDPAddr{IP: here})
			if err != nil {
				t.Fatal(err)
			}
			from := sender.LocalAddr().(*net.UDPAddr).AddrPort()
			sender.Close()
			listener, err := net.ListenUDP("udp", &net.UDPAddr{IP: here})
			if err != nil {
				t.Fatal(err)
			}
			to := listener.LocalAddr().(*net.UDPAddr).AddrPort()
			listener.Close()
			receiver, err := NewReceiver(ReceiverConfig{
				Listen: to, From: netip.AddrPortFrom(to.Addr(), from.Port()), Token: Token("flow"), Interval: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer receiver.Close()
			send := func(local *net.UDPAddr, datagram []byte, count int) {
				conn, err := net.DialUDP("udp", local, net.UDPAddrFromAddrPort(to))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				for range count {
					conn.Write(datagram)
				}
			}
			send(nil, []byte("from a stranger"), 10_000)
			send(net.UDPAddrFromAddrPort(from), []byte("no datagram of the flow"), 1)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			got, err := receiver.Run(ctx)
			if err != nil || got.ForeignPackets != 1 || got.SocketDrops != 0 || got.ReceivedPackets != 0 {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}
