package observe

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// inNetwork runs a test in a network of its own with two interfaces, va and vb,
// that are connected.
func inNetwork(t *testing.T, test func(run func(command string))) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	ended := make(chan struct{})
	go func() { // its thread ends with it
		defer close(ended)
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		run := func(command string) {
			if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", command, err, out)
				runtime.Goexit()
			}
		}
		run("ip link set lo up; ip link add va type veth peer name vb; " +
			"sysctl -qw net.ipv6.conf.va.disable_ipv6=1 net.ipv6.conf.vb.disable_ipv6=1; ip addr add 198.18.1.1/24 dev va; ip link set va up; ip link set vb up; " +
			// The kernel tells of a link that is up a little later.
			"timeout 10 sh -c 'until test $(ip -oneline link show up | grep -c \"state UP\") = 2; do sleep 0.01; done'")
		test(run)
	}()
	<-ended
}

// differences are names of settings whose text is another, sorted. Left out is
// what others change on this machine meanwhile.
func differences(before, after *Reading) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(before.Settings)) {
		if text, ok := after.Settings[name]; !ok || text != before.Settings[name] {
			names = append(names, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after.Settings)) {
		if _, ok := before.Settings[name]; !ok {
			names = append(names, name)
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, "service ") })
}

func TestChanges(t *testing.T) {
	inNetwork(t, func(run func(string)) {
		for _, c := range []struct{ prepare, change, name, before, after string }{
			{"", "sysctl -qw net.ipv4.conf.va.rp_filter=1", "net.ipv4.conf.va.rp_filter", "", "1"},
			{"", "sysctl -qw net.ipv4.tcp_sack=0", "net.ipv4.tcp_sack", "1", "0"},
			{"", "tc qdisc replace dev va root pfifo limit 123", "qdisc va root", "noqueue 0:", "pfifo auto: 123"},
			{"tc qdisc replace dev va root handle 2: tbf rate 8mbit burst 20kb limit 100kb", "tc qdisc change dev va root handle 2: tbf rate 9mbit burst 20kb limit 100kb", "qdisc va root", "tbf 2: ", "tbf 2: "},
			{"tc qdisc replace dev va root handle 1: htb default 1; tc class add dev va parent 1: classid 1:1 htb rate 10mbit",
				"tc class change dev va parent 1: classid 1:1 htb rate 11mbit", "class va 1:1", "htb root parameters 0x", "htb root parameters 0x"},
			{"tc qdisc add dev va ingress", "tc filter add dev va ingress protocol ip u32 match u32 0 0 action mirred egress redirect dev vb",
				"filter va ingress preference 49152 protocol 0800 chain 0 handle 800", "", "u32"},
			{"", "ip link set va mtu 1400", "va mtu", "1500", "1400"},
			{"", "ip link set va txqueuelen 7", "va txqueuelen", "1000", "7"},
			{"", "ip link set va gso_max_segs 10", "va gso_max_segs", "65535", "10"},
			{"", "ip route add 198.18.2.0/24 via 198.18.1.2", "route 198.18.2.0/24", "", "via 198.18.1.2 dev va proto 3 scope global"},
			{"", "ip route change 198.18.2.0/24 via 198.18.1.2 initcwnd 20 quickack 1", "route 198.18.2.0/24",
				"via 198.18.1.2 dev va proto 3 scope global", "via 198.18.1.2 dev va proto 3 scope global initcwnd 20 quickack 1"},
			{"", "ip route change 198.18.2.0/24 via 198.18.1.2 congctl reno", "route 198.18.2.0/24", "", "via 198.18.1.2 dev va proto 3 scope global congctl reno"},
			{"", "ip rule add from 198.18.1.1 table 7 priority 100", "rule 100", "", "table 7"},
		} {
			run(c.prepare + "\ntrue")
			before := Read()
			run(c.change)
			after := Read()
			got := differences(before, after)
			if len(got) == 0 || !slices.ContainsFunc(got, func(name string) bool { return strings.HasPrefix(name, c.name) }) {
				t.Errorf("%s changed %q", c.change, got)
				continue
			}
			for _, name := range got {
				// A new size of packets is that of IPv6, and of what the kernel makes of it, too.
				if !strings.HasPrefix(name, c.name) && !(c.name == "va mtu" && strings.HasSuffix(name, ".mtu")) {
					t.Errorf("%s changed %q: %q to %q", c.change, name, before.Settings[name], after.Settings[name])
				}
			}
			if b := before.Settings[got[0]]; !strings.HasPrefix(b, c.before) {
				t.Errorf("%s was %q", got[0], b)
			}
			if a := after.Settings[got[0]]; !strings.Contains(a, c.after) {
				t.Errorf("%s became %q", got[0], a)
			}
		}
	})
}

// TestFeature switches one, as ethtool does.
func TestFeature(t *testing.T) {
	inNetwork(t, func(func(string)) {
		const setGRO = 0x2c // ETHTOOL_SGRO
		before := Read()
		socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer unix.Close(socket)
		e := &ethtool{socket: socket}
		value := command(setGRO, 2)
		if before.Settings["va feature generic-receive-offload"] == "off" {
			value[4] = 1
		}
		if err := e.ask("va", value); err != nil {
			t.Error(err)
			return
		}
		if got := differences(before, Read()); !slices.Equal(got, []string{"va feature generic-receive-offload"}) {
			t.Errorf("changed %q", got)
		}
	})
}

// TestCountersAreNotRead sends packets through queues, filters and actions.
func TestCountersAreNotRead(t *testing.T) {
	inNetwork(t, func(run func(string)) {
		run(`tc qdisc replace dev va root handle 1: htb default 1
			tc class add dev va parent 1: classid 1:1 htb rate 10mbit
			tc qdisc add dev va parent 1:1 handle 10: tbf rate 8mbit burst 20kb limit 100kb
			tc filter add dev va parent 1: protocol ip u32 match ip dst 198.18.1.9/32 flowid 1:1
			tc qdisc add dev vb ingress
			tc filter add dev vb ingress protocol ip u32 match u32 0 0 action mirred egress redirect dev va`)
		before := Read()
		for name, reason := range before.Unread {
			t.Errorf("%s is unread: %s", name, reason)
		}
		filters := 0
		for name := range before.Settings {
			if strings.HasPrefix(name, "filter ") {
				filters++
			}
		}
		if filters < 2 {
			t.Errorf("%d filters", filters)
		}
		run("ip neigh add 198.18.1.9 lladdr 02:00:00:00:00:01 dev va; ping -q -c 3 -i 0.01 -W 0.1 198.18.1.9 >/dev/null; sleep 0.02; tc -s qdisc show dev va >/dev/null; true")
		if got := differences(before, Read()); len(got) > 0 {
			t.Errorf("packets changed %q", got)
		}
	})
}

// TestReplacedQueueIsTheSame: the kernel gives each a new handle.
func TestReplacedQueueIsTheSame(t *testing.T) {
	inNetwork(t, func(run func(string)) {
		run("tc qdisc replace dev va root pfifo limit 9")
		before := Read()
		run("tc qdisc del dev va root; tc qdisc replace dev va root pfifo limit 9")
		if got := differences(before, Read()); len(got) > 0 {
			t.Errorf("changed %q", got)
		}
	})
}

func TestNftables(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("nft is not installed")
	}
	inNetwork(t, func(run func(string)) {
		const rules = `nft -f - <<'END'
flush ruleset
table ip a {
  set s { type ipv4_addr; elements = { 198.18.1.9, 198.18.1.8 } }
  chain c { type filter hook output priority 0; ip daddr @s counter accept; }
}
END`
		if before := Read(); before.Settings["nftables"] != "none" {
			t.Errorf("before there are rules, nftables is %q: %v", before.Settings["nftables"], before.Unread)
		}
		run(rules)
		before := Read()
		if !strings.HasPrefix(before.Settings["nftables"], "sha256 ") {
			t.Fatalf("nftables is %q: %v", before.Settings["nftables"], before.Unread)
		}
		run("ping -q -c 1 -W 0.1 198.18.1.9 >/dev/null; true")
		run(rules)
		if got := differences(before, Read()); len(got) > 0 {
			t.Errorf("packets, and the same rules again, changed %q", got)
		}
		run("nft add element ip a s { 198.18.1.7 }")
		if got := differences(before, Read()); !slices.Equal(got, []string{"nftables"}) {
			t.Errorf("an element more changed %q", got)
		}
	})
}

func TestTwoReadingsAreEqual(t *testing.T) {
	before, after := Read(), Read()
	if got := differences(before, after); len(got) > 0 {
		t.Errorf("%q changed by themselves", got)
	}
	for _, name := range []string{"net.ipv4.tcp_sack", "net.core.rmem_max", "kernel release", "kernel command line", "clock source", "nftables",
		"iptables", "route 127.0.0.0/8 table local", "qdisc lo root", "service irqbalance"} {
		if before.Settings[name] == "" {
			t.Errorf("%s is not read: %s", name, before.Unread[name])
		}
	}
	if len(before.BootID) != 36 || before.UnixNs > after.UnixNs {
		t.Errorf("boot %q, %d, %d", before.BootID, before.UnixNs, after.UnixNs)
	}
}

// TestSecretsAreLeftOut also where they could be read.
func TestSecretsAreLeftOut(t *testing.T) {
	r := Read()
	for _, names := range []map[string]string{r.Settings, r.Unread} {
		for name := range names {
			if strings.Contains(name, "fastopen_key") || strings.Contains(name, "stable_secret") || leftOut(name) && !strings.HasPrefix(name, "module ") {
				t.Errorf("%s is read", name)
			}
		}
	}
	for _, left := range LeftOut {
		if left.Reason == "" {
			t.Errorf("%s has no reason", left.Name)
		}
	}
}

// write makes a file below a directory that the test alone has.
func write(t *testing.T, text string, path ...string) string {
	t.Helper()
	name := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestCommandLine is the same in all worlds of virtual time, of whatever seed
// they are and whenever they begin; other words count.
func TestCommandLine(t *testing.T) {
	lines := []string{
		"mem=4G root=/dev/root time-travel=inf-cpu time-travel-start=1764162000000000000 rng_seed=00ff con=null\n",
		"mem=4G root=/dev/root time-travel=inf-cpu time-travel-start=1764162009000000000 rng_seed=5a5a con=null\n",
		"mem=4G root=/dev/root time-travel=inf-cpu con=null mitigations=off\n",
	}
	const world = "mem=4G root=/dev/root time-travel=inf-cpu con=null"
	for i, want := range []string{world, world, world + " mitigations=off"} {
		r := &Reading{Settings: make(map[string]string), Unread: make(map[string]string)}
		r.readCommandLine(write(t, lines[i], t.TempDir(), "cmdline"))
		if got := r.Settings["kernel command line"]; got != want {
			t.Errorf("%q is read of %q", got, lines[i])
		}
	}
}

// TestAffinity is that of the queues in their order, whatever numbers a boot has
// given their interrupts.
func TestAffinity(t *testing.T) {
	for _, interrupts := range [][]string{{"98", "99", "100"}, {"127", "128", "129"}} {
		folder := t.TempDir()
		for i, cpus := range []string{"0", "1-3", "2"} {
			write(t, cpus+"\n", folder, interrupts[i], "smp_affinity_list")
		}
		r := &Reading{Settings: make(map[string]string), Unread: make(map[string]string)}
		r.readAffinity("irq affinity vec1", folder, interrupts)
		if got := r.Settings["irq affinity vec1"]; got != "0 1-3 2" {
			t.Errorf("%q is read of %q", got, interrupts)
		}
		r.readAffinity("irq affinity vec2", folder, []string{"1"})
		if got := r.Settings["irq affinity vec2"]; got != "" {
			t.Errorf("%q is read of an interrupt that is not there", got)
		}
	}
}

func TestUnreadableIsSaid(t *testing.T) {
	r := &Reading{Settings: make(map[string]string), Unread: make(map[string]string)}
	r.file("directory", t.TempDir())
	r.file("missing", filepath.Join(t.TempDir(), "none"))
	if len(r.Settings) != 0 || len(r.Unread) != 1 || r.Unread["directory"] != "is a directory" {
		t.Errorf("%+v", r)
	}
}

// TestMatches compares with a slow, plain definition.
func TestMatches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[ab*]{0,6}`).Draw(t, "pattern")
		name := rapid.StringMatching(`[ab]{0,6}`).Draw(t, "name")
		want, err := filepath.Match(pattern, name)
		if err != nil {
			t.Fatal(err)
		}
		if got := matches(pattern, name); got != want {
			t.Errorf("%v", got)
		}
	})
}

// TestText writes attributes in any order alike.
func TestText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kinds := rapid.SliceOfNDistinct(rapid.Uint16Range(1, 20), 0, 8, rapid.ID).Draw(t, "kinds")
		var all []attribute
		for _, kind := range kinds {
			all = append(all, attribute{kind, rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, fmt.Sprint(kind))})
		}
		shuffled := rapid.Permutation(all).Draw(t, "shuffled")
		if text(all, nil) != text(shuffled, nil) {
			t.Errorf("%s and %s", text(all, nil), text(shuffled, nil))
		}
	})
}

// TestInterfaceMadeAgainIsTheSame: the kernel gives it a new index.
func TestInterfaceMadeAgainIsTheSame(t *testing.T) {
	inNetwork(t, func(run func(string)) {
		made := `ip link add name vc type veth peer name vd; ip link set vc up
			tc qdisc replace dev va ingress; tc filter add dev va ingress protocol ip u32 match u32 0 0 action mirred egress redirect dev vc`
		run(made)
		before := Read()
		for name, value := range before.Settings {
			if strings.Contains(value, "mirred") && !strings.HasSuffix(value, " to vc") {
				t.Errorf("%s is %q", name, value)
			}
		}
		run("tc qdisc del dev va ingress; ip link del vc; " + made)
		if got := differences(before, Read()); len(got) > 0 {
			t.Errorf("changed %q", got)
		}
	})
}
