package observe

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// readDevice reads what sysfs tells of an interface.
func (r *Reading) readDevice(name string) {
	base := "/sys/class/net/" + name + "/"
	for _, file := range []string{"gro_flush_timeout", "napi_defer_hard_irqs", "threaded"} {
		r.file(name+" "+file, base+file)
	}
	for _, queue := range directory(base + "queues") {
		for _, file := range []string{"rps_cpus", "rps_flow_cnt", "xps_cpus", "byte_queue_limits/limit_min", "byte_queue_limits/limit_max", "tx_maxrate"} {
			if strings.HasPrefix(file, "rps") == strings.HasPrefix(queue, "rx") {
				r.file(name+" "+queue+" "+filepath.Base(file), base+"queues/"+queue+"/"+file)
			}
		}
	}
	r.file(name+" pcie width", base+"device/current_link_width")
	r.file(name+" pcie speed", base+"device/current_link_speed")
	r.file(name+" numa node", base+"device/numa_node")
	interrupts := directory(base + "device/msi_irqs")
	if len(interrupts) == 0 {
		if irq, err := readText(base + "device/irq"); err == nil && irq != "0" {
			interrupts = []string{irq}
		}
	}
	slices.SortFunc(interrupts, func(a, b string) int { return len(a) - len(b) }) // directory has sorted those of one length
	r.readAffinity("irq affinity "+name, "/proc/irq", interrupts)
}

// readAffinity reads the processors of each interrupt, in their order.
func (r *Reading) readAffinity(name, folder string, interrupts []string) {
	var affinity []string
	for _, irq := range interrupts {
		cpus, err := readText(filepath.Join(folder, irq, "smp_affinity_list"))
		if err != nil {
			r.unread(name, err)
			return
		}
		affinity = append(affinity, cpus)
	}
	if len(affinity) > 0 {
		r.set(name, strings.Join(affinity, " "))
	}
}

// networkModules are prefixes of the names of modules that work on packets.
var networkModules = []string{"tcp_", "sch_", "cls_", "act_", "em_", "nf", "xt_", "ip", "ebt", "arp", "br_netfilter", "bridge", "ifb", "veth", "tun", "vxlan", "geneve",
	"mptcp", "bonding", "8021q", "macvlan", "wireguard", "inet_diag", "udp_diag", "raw_diag", "sctp", "dccp", "udp_tunnel", "virtio_net"}

// readModules reads which modules of the network are loaded, and their
// parameters, which those that are built into the kernel have, too.
func (r *Reading) readModules() {
	drivers := make(map[string]bool) // modules of network cards
	for _, device := range directory("/sys/class/net") {
		if module := link("/sys/class/net/" + device + "/device/driver/module"); module != "" {
			drivers[module] = true
		}
	}
	concerns := func(module string) bool {
		return drivers[module] || slices.ContainsFunc(networkModules, func(prefix string) bool { return strings.HasPrefix(module, prefix) })
	}
	loaded, err := readBytes("/proc/modules")
	if err != nil {
		r.unread("modules", err)
	}
	for line := range strings.Lines(string(loaded)) {
		module, _, _ := strings.Cut(line, " ")
		if !concerns(module) || leftOut("module "+module) {
			continue
		}
		build := "loaded"
		if version, err := readText("/sys/module/" + module + "/srcversion"); err == nil {
			build = "loaded, srcversion " + version
		}
		r.set("module "+module, build)
	}
	for _, module := range directory("/sys/module") {
		if !concerns(module) {
			continue
		}
		parameters := "/sys/module/" + module + "/parameters"
		for _, parameter := range directory(parameters) {
			text, err := readText(parameters + "/" + parameter)
			if name := "module " + module + " " + parameter; err != nil {
				r.unread(name, err)
			} else {
				r.Settings[name] = text
			}
		}
	}
}

// readKernel reads which kernel it is, and how it was started.
func (r *Reading) readKernel() {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		r.unread("kernel release", err)
	} else {
		r.set("kernel release", unix.ByteSliceToString(name.Release[:]))
		r.set("kernel version", unix.ByteSliceToString(name.Version[:]))
	}
	r.readCommandLine("/proc/cmdline")
	r.file("clock source", "/sys/devices/system/clocksource/clocksource0/current_clocksource")
	const vulnerabilities = "/sys/devices/system/cpu/vulnerabilities"
	for _, name := range directory(vulnerabilities) {
		r.file("mitigation "+name, vulnerabilities+"/"+name)
	}
}

// ofOneWorld begin words of the command line that each world of virtual time has
// of its own.
var ofOneWorld = []string{"rng_seed=", "time-travel-start="}

func (r *Reading) readCommandLine(path string) {
	const name = "kernel command line"
	text, err := readText(path)
	if err != nil {
		r.unread(name, err)
		return
	}
	words := slices.DeleteFunc(strings.Fields(text), func(word string) bool {
		return slices.ContainsFunc(ofOneWorld, func(prefix string) bool { return strings.HasPrefix(word, prefix) })
	})
	r.set(name, strings.Join(words, " "))
}

// readProcessors reads how fast processors are, and how deep they sleep.
func (r *Reading) readProcessors() {
	const base = "/sys/devices/system/cpu/"
	r.file("smt", base+"smt/control")
	r.file("cpus online", base+"online")
	r.file("cpus isolated", base+"isolated")
	r.file("turbo", base+"cpufreq/boost")
	if off, err := readText(base + "intel_pstate/no_turbo"); err == nil {
		r.set("turbo", map[string]string{"0": "1", "1": "0"}[off])
	}
	r.file("pstate driver", base+"intel_pstate/status")
	r.file("idle driver", base+"cpuidle/current_driver")
	r.file("idle governor", base+"cpuidle/current_governor")
	governors, idle, most, least := make(byCPU), make(byCPU), make(byCPU), make(byCPU)
	for _, cpu := range cpus(base) {
		path := fmt.Sprint(base, "cpu", cpu)
		for values, file := range map[*byCPU]string{&governors: "scaling_governor", &most: "scaling_max_freq", &least: "scaling_min_freq"} {
			if value, err := readText(path + "/cpufreq/" + file); err == nil {
				values.add(value, cpu)
			}
		}
		var states []string
		for _, state := range directory(path + "/cpuidle") {
			name, _ := readText(path + "/cpuidle/" + state + "/name")
			disabled, err := readText(path + "/cpuidle/" + state + "/disable")
			if err == nil {
				states = append(states, name+" "+onOff(disabled == "0"))
			}
		}
		if len(states) > 0 {
			idle.add(strings.Join(states, ", "), cpu)
		}
	}
	for name, values := range map[string]byCPU{"governor": governors, "idle states": idle, "frequency max": most, "frequency min": least} {
		if len(values) > 0 {
			r.set(name, values.text())
		}
	}
}

// cpus are the numbers of all processors.
func cpus(base string) (numbers []int) {
	for _, name := range directory(base) {
		if n, err := strconv.Atoi(strings.TrimPrefix(name, "cpu")); err == nil && strings.HasPrefix(name, "cpu") {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers
}

// byCPU has the processors of each value.
type byCPU map[string][]int

func (v byCPU) add(value string, cpu int) { v[value] = append(v[value], cpu) }

// text is the value, or the values with their processors where they differ.
func (v byCPU) text() string {
	var words []string
	for value, cpus := range v {
		if len(v) == 1 {
			return value
		}
		words = append(words, fmt.Sprintf("%s: cpu %s", value, strings.Trim(fmt.Sprint(cpus), "[]")))
	}
	slices.Sort(words)
	return strings.Join(words, "; ")
}

// services are daemons that change what influences TCP, or use the same
// resources, by the names of their processes, of which the kernel keeps 15 bytes.
var services = []string{"NetworkManager", "auto-cpufreq", "bird", "chronyd", "cilium-agent", "connmand", "conmon", "containerd", "dhclient", "dhcpcd", "dockerd",
	"fail2ban-server", "firewalld", "frr", "irqbalance", "keepalived", "kubelet", "libvirtd", "lldpd", "ntpd", "numad", "phc2sys", "podman",
	"power-profiles-daemon", "ptp4l", "systemd-networkd", "systemd-timesyncd", "tailscaled", "telegraf", "thermald", "tlp", "tuned", "wpa_supplicant", "zebra"}

func (r *Reading) readServices() {
	running := make(map[string]bool)
	for _, process := range directory("/proc") {
		if process[0] >= '0' && process[0] <= '9' {
			if name, err := readText("/proc/" + process + "/comm"); err == nil {
				running[name] = true
			}
		}
	}
	for _, service := range services {
		state := "absent"
		if running[service[:min(len(service), 15)]] {
			state = "running"
		}
		r.set("service "+service, state)
	}
}
