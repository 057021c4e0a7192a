package tcpinfo

import (
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"dumbbell/collectors/row"
)

func TestFilter(t *testing.T) {
	var ports []uint16
	var clients []net.Conn
	ours := map[uint16]bool{} // ports of the clients: other sockets of the machine may have the ports of these servers
	for range 20 {
		client, _, _ := pair(t, "tcp4")
		clients = append(clients, client)
		ours[tuple(client).Local.Port()] = true
		ports = append(ports, tuple(client).Remote.Port())
	}
	own, err := CgroupID("/sys/fs/cgroup" + cgroupOf(t))
	check(t, err)
	c := dial(t)
	for name, test := range map[string]struct {
		filter Filter
		want   int
	}{
		"one port":              {Filter{Ports: ports[3:4]}, 2},
		"local port of clients": {Filter{Ports: []uint16{tuple(clients[0]).Local.Port()}}, 2},
		"all ports":             {Filter{Ports: ports}, 40},
		"no socket's port":      {Filter{Ports: []uint16{1}}, 0},
		"own cgroup and ports":  {Filter{Ports: ports[:5], Cgroup: own}, 10},
		"another cgroup":        {Filter{Ports: ports, Cgroup: own + 1<<40}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if test.filter.Cgroup != 0 && c.Dump(Filter{Cgroup: own}, new(Sample), func() {}) != nil {
				t.Skip("the kernel knows no cgroups of sockets")
			}
			n := 0
			var s Sample
			check(t, c.Dump(test.filter, &s, func() {
				if ours[s.Tuple.Local.Port()] || ours[s.Tuple.Remote.Port()] {
					n++
				}
			}))
			if n != test.want {
				t.Errorf("%d sockets, want %d", n, test.want)
			}
		})
	}
}

func cgroupOf(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/cgroup")
	check(t, err)
	m := regexp.MustCompile(`(?m)^0::(.*)$`).FindSubmatch(b)
	if m == nil {
		t.Skip("no cgroup of version 2")
	}
	return string(m[1])
}

// TestSlots: a socket that ends leaves its slot to the next, and a short one
// that was never listed has its last row all the same.
func TestSlots(t *testing.T) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	check(t, err)
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).AddrPort().Port()
	s, err := NewSockets(row.Tags{"host": "here"}, "slot", Filter{Ports: []uint16{port}})
	check(t, err)
	defer s.Close()
	rows := newRows(t)
	for i := range 5 {
		client, err := net.Dial("tcp4", listener.Addr().String())
		check(t, err)
		server, err := listener.Accept()
		check(t, err)
		if i%2 == 0 {
			check(t, s.Sample(rows))
		}
		check(t, client.Close())
		check(t, server.Close())
		for deadline := time.Now().Add(5 * time.Second); strings.Count(string(rows.Bytes()), final+"=true") < 2*i+2; time.Sleep(time.Millisecond) {
			check(t, s.Sample(rows))
			if time.Now().After(deadline) {
				t.Fatalf("ends are missing: %s", rows.Bytes())
			}
		}
	}
	cookies := make(map[string]bool)
	for _, series := range []string{"tcp_info,host=here,slot=0", "tcp_info,host=here,slot=1"} {
		for _, fields := range fieldsOf(t, rows, series) {
			cookies[fields["cookie"]] = true
			if !strings.HasSuffix(fields["local"], fmt.Sprint(":", port)) && !strings.HasSuffix(fields["remote"], fmt.Sprint(":", port)) {
				t.Errorf("a socket of another port: %v", fields)
			}
		}
	}
	if len(cookies) != 10 || strings.Contains(string(rows.Bytes()), "slot=2") {
		t.Errorf("%d sockets: %s", len(cookies), rows.Bytes())
	}
}
