package udp

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"dumbbell/traffic/socket"

	"golang.org/x/sys/unix"
)

func FuzzDecode(f *testing.F) {
	b := make([]byte, HeaderBytes)
	header{kindEnd, 1, 2, -3}.encode(b)
	f.Add(b)
	f.Add([]byte("dbl1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decode(b)
		if err != nil {
			return
		}
		again := make([]byte, HeaderBytes)
		h.encode(again)
		if !slices.Equal(again, b[:HeaderBytes]) {
			t.Errorf("% x decodes to %+v, which encodes to % x", b[:HeaderBytes], h, again)
		}
	})
}

// --- over loopback --------------------------------------------------------------------------------

func listen(t *testing.T, address string, token uint64, report func(ReceivedReport)) (*Receiver, netip.AddrPort) {
	t.Helper()
	r, err := NewReceiver(ReceiverConfig{
		Listen: netip.AddrPortFrom(netip.MustParseAddr(address), 0), Token: token, Interval: 20 * time.Millisecond, Report: report,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	name, err := unix.Getsockname(r.fd)
	if err != nil {
		t.Fatal(err)
	}
	switch name := name.(type) {
	case *unix.SockaddrInet4:
		return r, netip.AddrPortFrom(netip.MustParseAddr(address), uint16(name.Port))
	case *unix.SockaddrInet6:
		return r, netip.AddrPortFrom(netip.MustParseAddr(address), uint16(name.Port))
	}
	panic("neither IPv4 nor IPv6")
}

func TestFlow(t *testing.T) {
	for name, test := range map[string]struct {
		address string
		size    int
		noGSO   bool
	}{
		"IPv4":         {"127.0.0.1", 1472, false},
		"IPv6":         {"::1", 1452, false},
		"without GSO":  {"127.0.0.1", 1472, true},
		"fragmented":   {"127.0.0.1", MaxSize, false},
		"small":        {"127.0.0.1", HeaderBytes, false},
		"odd and IPv6": {"::1", 33, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			token := Token(name)
			var received []ReceivedReport
			receiver, to := listen(t, test.address, token, func(r ReceivedReport) { received = append(received, r) })
			var sent []SentReport
			rate := int64(test.size) * 8 * 2000 // 2000 datagrams a second, and 4000
			sender, err := NewSender(SenderConfig{
				To: to, Token: token, Interval: 20 * time.Millisecond, Report: func(r SentReport) { sent = append(sent, r) },
				Schedule: Schedule{
					Steps:    []Step{{0, rate}, {100 * time.Millisecond, 0}, {250 * time.Millisecond, 2 * rate}},
					Duration: 300 * time.Millisecond, Size: test.size,
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer sender.Close()
			if test.noGSO {
				sender.batch.GSO = false
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			start := time.Now().Add(50 * time.Millisecond)
			done := make(chan ReceivedResult)
			go func() {
				got, err := receiver.Run(ctx)
				if err != nil {
					t.Error(err)
				}
				done <- got
			}()
			out, err := sender.Run(ctx, start)
			if err != nil {
				t.Fatal(err)
			}
			got := <-done
			t.Logf("sent %+v", out)
			t.Logf("received %+v", got)

			if out.AskedPackets != 400 || out.SentPackets+out.SkippedPackets != 400 || out.SentBytes != out.SentPackets*uint64(test.size) {
				t.Errorf("asked %d, sent %d of %d bytes, skipped %d", out.AskedPackets, out.SentPackets, out.SentBytes, out.SkippedPackets)
			}
			if got.ReceivedPackets+got.LostPackets != out.SentPackets || got.ReceivedBytes != got.ReceivedPackets*uint64(test.size) || !got.EndSeen {
				t.Errorf("received %d, lost %d of %d, end seen %v", got.ReceivedPackets, got.LostPackets, out.SentPackets, got.EndSeen)
			}
			if got.LostPackets != 0 || got.ReorderedPackets != 0 || got.DuplicatePackets != 0 || got.ForeignPackets != 0 {
				t.Errorf("loopback lost, reordered or duplicated: %+v", got)
			}
			if got.DelayMinNs < 0 || got.DelayMinNs > got.DelayMeanNs || got.DelayMeanNs > got.DelayMaxNs || got.DelayPackets != got.ReceivedPackets {
				t.Errorf("delays %+v", got)
			}
			last := sent[len(sent)-1]
			if last.SentPackets != out.SentPackets || last.AskedPackets != 400 {
				t.Errorf("last report %+v", last)
			}
			final := received[len(received)-1]
			if final.ReceivedPackets != got.ReceivedPackets || final.LostPackets != got.LostPackets {
				t.Errorf("last report %+v", final)
			}
			var before ReceivedReport
			var delays uint64
			for _, r := range received {
				if r.UnixNs%int64(20*time.Millisecond) != 0 || r.UnixNs <= before.UnixNs || r.ReceivedPackets-before.ReceivedPackets != r.DelayPackets {
					t.Errorf("report %+v after %+v", r, before)
				}
				before, delays = r, delays+r.DelayPackets
			}
			if delays != got.DelayPackets {
				t.Errorf("delays of %d in the intervals, of %d in all", delays, got.DelayPackets)
			}
		})
	}
}

// TestReceiverCounts sends a sequence with everything wrong in it by hand.
func TestReceiverCounts(t *testing.T) {
	t.Parallel()
	token := Token("own")
	receiver, to := listen(t, "127.0.0.1", token, nil)
	fd, err := socket.Open(to.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, socket.Sockaddr(to)); err != nil {
		t.Fatal(err)
	}
	send := func(h header) {
		b := make([]byte, 100)
		h.unixNs = time.Now().Add(-time.Millisecond).UnixNano()
		h.encode(b)
		if _, err := unix.Write(fd, b); err != nil {
			t.Fatal(err)
		}
	}
	for _, sequence := range []uint64{0, 1, 3, 2, 2, 5, 7} {
		send(header{kind: kindData, token: token, sequence: sequence})
	}
	send(header{kind: kindData, token: token + 1, sequence: 6})
	if _, err := unix.Write(fd, []byte("what is this?")); err != nil {
		t.Fatal(err)
	}
	send(header{kind: kindEnd, token: token, sequence: 10})
	send(header{kind: kindData, token: token, sequence: 8}) // overtaken by the end
	got, err := receiver.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.ReceivedPackets != 7 || got.LostPackets != 3 || got.ReorderedPackets != 1 || got.DuplicatePackets != 1 || got.ForeignPackets != 2 || got.ReceivedBytes != 700 {
		t.Errorf("%+v", got)
	}
	if got.DelayMinNs < 1e6 {
		t.Errorf("least delay %d ns, more than 1 ms was given", got.DelayMinNs)
	}
}

// TestSenderSaysWhatItDidNotSend asks for more than any machine can.
func TestSenderSaysWhatItDidNotSend(t *testing.T) {
	t.Parallel()
	_, to := listen(t, "127.0.0.1", 0, nil)
	sender, err := NewSender(SenderConfig{
		To: to, Interval: 100 * time.Millisecond,
		Schedule: Schedule{Steps: []Step{{0, MaxRateBps / 10}}, Duration: 500 * time.Millisecond, Size: HeaderBytes},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	out, err := sender.Run(t.Context(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	// 100 Gbit/s for half a second in datagrams of 32 bytes.
	if out.Held() || out.AskedPackets != 195312500 || out.SkippedPackets == 0 || out.SentPackets+out.SkippedPackets != out.AskedPackets {
		t.Errorf("%+v", out)
	}
}

func TestSenderEndsWithContext(t *testing.T) {
	t.Parallel()
	_, to := listen(t, "127.0.0.1", 0, nil)
	sender, err := NewSender(SenderConfig{
		To: to, Interval: time.Minute,
		Schedule: Schedule{Steps: []Step{{0, 8000}, {time.Second, 0}}, Duration: time.Hour, Size: 100},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	out, err := sender.Run(ctx, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if out.AskedPackets != 10 || out.SentPackets == 0 || out.SentPackets > 10 {
		t.Errorf("%+v", out)
	}
}

// TestNothingAllocated counts what a flow allocates beyond its buffers.
func TestNothingAllocated(t *testing.T) {
	receiver, to := listen(t, "127.0.0.1", 0, nil)
	sender, err := NewSender(SenderConfig{
		To: to, Interval: time.Second,
		Schedule: Schedule{Steps: []Step{{0, 100e6}}, Duration: time.Second, Size: 1472},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	allocations := testing.AllocsPerRun(100, func() {
		for i := range 8 {
			header{kindData, 0, sender.sequence + uint64(i), 1}.encode(sender.batch.Place())
			sender.batch.Add(1472)
		}
		sender.sequence += 8
		if err := sender.sendBatch(); err != nil {
			t.Fatal(err)
		}
		for i := range receiver.messages {
			receiver.messages[i].SetControllen(controlBytes)
		}
		n, err := socket.Receive(receiver.fd, receiver.messages)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			receiver.take(i, 0)
		}
	})
	if allocations != 0 {
		t.Errorf("%v allocations a batch", allocations)
	}
}
