package guard

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// TestMain runs the tests in a network namespace of their own, whose loopback
// interface has addresses of strangers.
func TestMain(m *testing.M) {
	switch os.Getenv("GUARD_TEST") {
	case "":
		os.Exit(inNamespace())
	case "server":
		serve(os.Args[1], os.Args[2])
	case "stubborn":
		listen := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
			return raw.Control(func(fd uintptr) {
				attach(int(fd), []bpf.Instruction{bpf.RetConstant{Val: take}})
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_LOCK_FILTER, 1)
			})
		}}
		if _, err := listen.Listen(context.Background(), os.Args[1], os.Args[2]); err != nil {
			panic(err)
		}
	default:
		for _, words := range []string{"link set lo up", "addr add fd00::1/128 dev lo nodad", "addr add fd00::2/128 dev lo nodad"} {
			if said, err := exec.Command("ip", strings.Fields(words)...).CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "ip %s: %v: %s\n", words, err, said)
				os.Exit(1)
			}
		}
		os.Exit(m.Run())
	}
}

func inNamespace() int {
	again := exec.Command("/proc/self/exe", os.Args[1:]...)
	again.Env = append(os.Environ(), "GUARD_TEST=tests")
	again.Stdout, again.Stderr = os.Stdout, os.Stderr
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		again.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		again.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
	}
	if err := again.Run(); err != nil {
		if _, ended := errors.AsType[*exec.ExitError](err); !ended {
			fmt.Fprintln(os.Stderr, "making a network namespace:", err)
		}
		return 1
	}
	return 0
}

// serve is a server that knows nothing of guards: it answers whom it hears.
func serve(network, address string) {
	if network == "udp" {
		conn, err := net.ListenPacket(network, address)
		if err != nil {
			panic(err)
		}
		fmt.Println("ready")
		for b := make([]byte, 100); ; {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				panic(err)
			}
			conn.WriteTo(b[:n], from)
		}
	}
	for range 3 { // it makes its listener anew, as iperf3 may
		l, err := net.Listen(network, address)
		if err != nil {
			panic(err)
		}
		fmt.Println("ready")
		conn, err := l.Accept()
		if err != nil {
			panic(err)
		}
		l.Close()
		io.WriteString(conn, "hello")
		conn.Close()
	}
}

type family struct{ server, peer, stranger string }

var families = map[string]family{
	"IPv4": {"127.0.0.1", "127.0.0.1", "127.0.0.2"},
	"IPv6": {"fd00::1", "fd00::1", "fd00::2"},
}

func (f family) port(number uint16) Port {
	return Port{netip.AddrPortFrom(netip.MustParseAddr(f.server), number), netip.MustParseAddr(f.peer)}
}

// answered tells whether a server answers an address.
func answered(t *testing.T, network, from string, to netip.AddrPort) bool {
	t.Helper()
	var local net.Addr = &net.TCPAddr{IP: net.ParseIP(from)}
	if network == "udp" {
		local = &net.UDPAddr{IP: net.ParseIP(from)}
	}
	dialer := net.Dialer{LocalAddr: local, Timeout: 300 * time.Millisecond}
	conn, err := dialer.Dial(network, to.String())
	if err != nil {
		if !errors.Is(err, os.ErrDeadlineExceeded) && !strings.Contains(err.Error(), "timeout") {
			t.Errorf("from %s to %v: %v", from, to, err)
		}
		return false
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(300 * time.Millisecond))
	if network == "udp" {
		io.WriteString(conn, "hello")
	}
	n, _ := conn.Read(make([]byte, 10))
	return n == 5
}

// TestFilter has a listener that answers its peer alone, over IPv4 and IPv6, also where it listens for both.
func TestFilter(t *testing.T) {
	for name, f := range families {
		for _, address := range []string{f.server, "::"} {
			t.Run(name+" at "+address, func(t *testing.T) {
				listen := net.ListenConfig{Control: f.port(0).Control}
				l, err := listen.Listen(t.Context(), "tcp", net.JoinHostPort(address, "0"))
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				go func() {
					for {
						conn, err := l.Accept()
						if err != nil {
							return
						}
						io.WriteString(conn, "hello")
						conn.Close()
					}
				}()
				to := netip.AddrPortFrom(netip.MustParseAddr(f.server), uint16(l.Addr().(*net.TCPAddr).Port))
				if answered(t, "tcp", f.stranger, to) {
					t.Error("a stranger is answered")
				}
				if !answered(t, "tcp", f.peer, to) {
					t.Error("the peer is not answered")
				}
				for other, strange := range families {
					if address == "::" && other != name && answered(t, "tcp", strange.peer, netip.AddrPortFrom(netip.MustParseAddr(strange.server), to.Port())) {
						t.Errorf("a stranger is answered over %s", other)
					}
				}
			})
		}
	}
}

// TestTool guards a program that opens its sockets itself, and opens them anew.
// While it does so strangers come without end.
func TestTool(t *testing.T) {
	number := uint16(20000)
	for name, f := range families {
		for _, network := range []string{"tcp", "udp"} {
			number++
			t.Run(network+" "+name, func(t *testing.T) {
				p := f.port(number)
				tool := exec.Command("/proc/self/exe", network, p.Local.String())
				tool.Env = append(os.Environ(), "GUARD_TEST=server", Environment)
				tool.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
				tool.Stderr = os.Stderr
				said, err := tool.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				over := make(chan struct{})
				stormed := make(chan error)
				go func() { stormed <- storm(f.stranger, p.Local, over) }()
				guarded, err := p.Start(tool.Start)
				if err != nil {
					t.Fatal(err)
				}
				lines := bufio.NewScanner(said)
				for i := range 3 {
					if (network == "tcp" || i == 0) && (!lines.Scan() || lines.Text() != "ready") {
						t.Fatalf("it said %q", lines.Text())
					}
					if answered(t, network, f.stranger, p.Local) {
						t.Error("a stranger is answered")
					}
					if !answered(t, network, f.peer, p.Local) {
						t.Error("the peer is not answered")
					}
				}
				close(over)
				if err := <-stormed; err != nil {
					t.Error(err)
				}
				tool.Process.Kill()
				tool.Wait()
				if err := guarded.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// storm asks for connections until it is over, and waits for none.
func storm(from string, to netip.AddrPort, over <-chan struct{}) error {
	family, local, remote := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{}), unix.Sockaddr(&unix.SockaddrInet4{Port: int(to.Port())})
	address := netip.MustParseAddr(from)
	if address.Is4() {
		local.(*unix.SockaddrInet4).Addr, remote.(*unix.SockaddrInet4).Addr = address.As4(), to.Addr().As4()
	} else {
		family = unix.AF_INET6
		local, remote = &unix.SockaddrInet6{Addr: address.As16()}, &unix.SockaddrInet6{Addr: to.Addr().As16(), Port: int(to.Port())}
	}
	for {
		select {
		case <-over:
			return nil
		default:
		}
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		err = unix.Bind(fd, local)
		if err == nil {
			err = unix.Connect(fd, remote)
		}
		unix.Close(fd)
		if err != nil && err != unix.EINPROGRESS && err != unix.ECONNREFUSED && err != unix.EADDRINUSE {
			return err
		}
	}
}

// TestToolThatCannotBeGuarded has a filter of its own that it does not let go of.
func TestToolThatCannotBeGuarded(t *testing.T) {
	p := families["IPv4"].port(20000)
	tool := exec.Command("/proc/self/exe", "tcp", p.Local.String())
	tool.Env = append(os.Environ(), "GUARD_TEST=stubborn", Environment)
	tool.Stderr = os.Stderr
	guarded, err := p.Start(tool.Start)
	if err != nil {
		t.Fatal(err)
	}
	if err := tool.Wait(); err != nil {
		t.Error(err)
	}
	if err := guarded.Close(); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "port 20000 could not be guarded: ") {
		t.Error(err)
	}
}

// TestToolThatFails is not started.
func TestToolThatFails(t *testing.T) {
	tool := exec.Command("/nonexistent")
	if guarded, err := families["IPv4"].port(1).Start(tool.Start); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, %v", guarded, err)
	}
}

// TestCount counts what strangers send to ports, and nothing else.
func TestCount(t *testing.T) {
	for name, f := range families {
		t.Run(name, func(t *testing.T) {
			ports := []Port{f.port(21001), f.port(21002), f.port(21003)}
			ports[2].Peer = netip.Addr{} // for anybody
			c, err := Count(ports)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if got, err := c.Read(); got != (Strangers{}) || err != nil {
				t.Errorf("before: %+v, %v", got, err)
			}
			udp := func(from string, port int) {
				conn, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(from)}, &net.UDPAddr{IP: net.ParseIP(f.server), Port: port})
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				conn.Write(make([]byte, 3000)) // in fragments where the MTU is small
			}
			tcp := func(from string, port int) {
				dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
				if conn, err := dialer.Dial("tcp", net.JoinHostPort(f.server, fmt.Sprint(port))); err == nil {
					conn.Close()
				}
			}
			l, err := net.Listen("tcp", net.JoinHostPort(f.server, "21002"))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			for _, from := range []string{f.peer, f.stranger} {
				for port := 21000; port <= 21003; port++ {
					udp(from, port)
					tcp(from, port)
				}
			}
			got, err := c.Read()
			if err != nil || got.Packets != 4 || !strings.HasPrefix(got.First, "UDP from ") ||
				!strings.Contains(got.First, f.stranger) || !strings.HasSuffix(got.First, " to "+ports[0].Local.String()) {
				t.Errorf("%+v, %v", got, err)
			}
			for range 1000 { // more than the socket has room for
				tcp(f.stranger, 21001)
			}
			if got, err := c.Read(); err != nil || got.Packets != 1004 {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// TestCountMany has more ports than a filter has room for.
func TestCountMany(t *testing.T) {
	for name, f := range families {
		var ports []Port
		for i := range uint16(1000) {
			ports = append(ports, f.port(30000+i))
		}
		c, err := Count(ports)
		if err != nil {
			t.Fatal(name, err)
		}
		conn, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(f.stranger)}, net.UDPAddrFromAddrPort(ports[999].Local))
		if err != nil {
			t.Fatal(err)
		}
		conn.Write(nil)
		conn.Close()
		if got, err := c.Read(); err != nil || got.Packets != 1 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		c.Close()
	}
}

// BenchmarkFilter is what a datagram over loopback costs with a filter, and
// without one.
func BenchmarkFilter(b *testing.B) {
	for _, filtered := range []bool{false, true} {
		b.Run(fmt.Sprint("filtered ", filtered), func(b *testing.B) {
			conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			raw, err := conn.SyscallConn()
			if err != nil {
				b.Fatal(err)
			}
			if filtered {
				if err := families["IPv4"].port(0).Control("", "", raw); err != nil {
					b.Fatal(err)
				}
			}
			to := conn.LocalAddr().(*net.UDPAddr).AddrPort()
			datagram := make([]byte, 100)
			for b.Loop() {
				if _, err := conn.WriteToUDPAddrPort(datagram, to); err != nil {
					b.Fatal(err)
				}
				if _, _, err := conn.ReadFromUDPAddrPort(datagram); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
