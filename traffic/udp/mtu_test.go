package udp

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// network is two hosts and a router between them, each a network namespace.
func network(t *testing.T, senderMTU, receiverMTU int) (sender, receiver netns) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for network namespaces")
	}
	sender, router, receiver := newNetns(t), newNetns(t), newNetns(t)
	for _, n := range []netns{sender, router, receiver} { // addresses are there at once
		n.run(t, "echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad")
	}
	router.run(t, fmt.Sprintf(`
		ip link add left mtu %[1]d type veth peer name eth mtu %[1]d netns /proc/%[3]d/fd/%[4]d
		ip link add right mtu %[2]d type veth peer name eth mtu %[2]d netns /proc/%[3]d/fd/%[5]d
		ip address add 198.18.1.1/24 dev left; ip address add 198.18.2.1/24 dev right
		ip -6 address add fd00:1::1/64 dev left nodad; ip -6 address add fd00:2::1/64 dev right nodad
		ip link set left up; ip link set right up
		echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding`,
		senderMTU, receiverMTU, os.Getpid(), sender.file.Fd(), receiver.file.Fd()))
	for i, host := range []netns{sender, receiver} {
		host.run(t, fmt.Sprintf(`
			ip address add 198.18.%[1]d.2/24 dev eth; ip -6 address add fd00:%[1]d::2/64 dev eth nodad
			ip link set eth up
			ip route add default via 198.18.%[1]d.1; ip -6 route add default via fd00:%[1]d::1`, i+1))
	}
	for _, to := range []string{"198.18.2.2:9", "[fd00:2::2]:9"} {
		awaitPath(t, sender, receiver, to)
	}
	return sender, receiver
}

// awaitPath waits until datagrams arrive: devices take a while until they pass packets.
func awaitPath(t *testing.T, sender, receiver netns, to string) {
	t.Helper()
	var in net.PacketConn
	var out net.Conn
	receiver.do(t, func() (err error) { in, err = net.ListenPacket("udp", to); return err })
	defer in.Close()
	sender.do(t, func() (err error) { out, err = net.Dial("udp", to); return err })
	defer out.Close()
	for giveUp := time.Now().Add(20 * time.Second); time.Now().Before(giveUp); {
		out.Write([]byte("?")) // refused while there is no way
		in.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if _, _, err := in.ReadFrom(make([]byte, 1)); err == nil {
			return
		}
	}
	t.Fatalf("nothing arrives at %s", to)
}

// A netns is a network namespace, which ends with the test.
type netns struct{ file *os.File }

func newNetns(t *testing.T) (n netns) {
	t.Helper()
	onThread(t, func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		n.file, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	t.Cleanup(func() { n.file.Close() })
	return n
}

func (n netns) do(t *testing.T, f func() error) {
	t.Helper()
	onThread(t, func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}

func (n netns) run(t *testing.T, script string) {
	t.Helper()
	n.do(t, func() error {
		if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// onThread runs f on a thread of its own, which ends with it.
func onThread(t *testing.T, f func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestLargeDatagrams: datagrams larger than the MTU of their device, or of the
// path, are fragmented. What is lost before the sender knows of the path's MTU
// is all that is lost.
func TestLargeDatagrams(t *testing.T) {
	for name, test := range map[string]struct {
		to                     string
		senderMTU, receiverMTU int
		size                   int
		lossless               bool
	}{
		"larger than the device's MTU":       {"198.18.2.2", 1500, 1500, 3000, true},
		"larger than the device's MTU, IPv6": {"fd00:2::2", 1500, 1500, 3000, true},
		"jumbo":                              {"198.18.2.2", 9000, 9000, 8972, true},
		"larger than jumbo":                  {"198.18.2.2", 9000, 9000, 8973, true},
		"larger than the path's MTU":         {"198.18.2.2", 1500, 1300, 1400, false},
		"larger than the path's MTU, IPv6":   {"fd00:2::2", 1500, 1300, 1400, false},
	} {
		t.Run(name, func(t *testing.T) {
			here, there := network(t, test.senderMTU, test.receiverMTU)
			to := netip.AddrPortFrom(netip.MustParseAddr(test.to), 5001)
			var sender *Sender
			var receiver *Receiver
			there.do(t, func() (err error) {
				receiver, err = NewReceiver(ReceiverConfig{Listen: to, Interval: time.Second})
				return err
			})
			defer receiver.Close()
			here.do(t, func() (err error) {
				rate := int64(test.size) * 8 * 2000 // 2000 datagrams a second
				sender, err = NewSender(SenderConfig{To: to, Interval: time.Second,
					Schedule: Schedule{Steps: []Step{{0, rate}}, Duration: 400 * time.Millisecond, Size: test.size}})
				return err
			})
			defer sender.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			done := make(chan ReceivedResult)
			go func() {
				got, err := receiver.Run(ctx)
				if err != nil {
					t.Error(err)
				}
				done <- got
			}()
			out, err := sender.Run(ctx, time.Now())
			if err != nil {
				cancel()
			}
			got := <-done
			t.Logf("sent %+v", out)
			t.Logf("received %+v", got)
			if err != nil {
				t.Fatal(err)
			}
			if out.AskedPackets != 800 || out.SentPackets+out.SkippedPackets != 800 || !got.EndSeen {
				t.Errorf("asked %d, sent %d, skipped %d, end seen %v", out.AskedPackets, out.SentPackets, out.SkippedPackets, got.EndSeen)
			}
			if got.ReceivedPackets+got.LostPackets != out.SentPackets || got.LostPackets > out.SentPackets/4 || test.lossless && got.LostPackets > 0 {
				t.Errorf("received %d and lost %d of %d", got.ReceivedPackets, got.LostPackets, out.SentPackets)
			}
		})
	}
}
