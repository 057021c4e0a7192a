package observe

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Commands and sets of strings of include/uapi/linux/ethtool.h.
const (
	getDriver       = 0x03
	getCoalescing   = 0x0e
	getRings        = 0x10
	getPause        = 0x12
	getStrings      = 0x1b
	getPrivateFlags = 0x27
	getSetInfo      = 0x37
	getFeatures     = 0x3a
	getChannels     = 0x3c
	getEEE          = 0x44
	getLinkSettings = 0x4c

	privateFlags = 2 // ETH_SS_PRIV_FLAGS
	features     = 4 // ETH_SS_FEATURES

	stringLength = 32 // ETH_GSTRING_LEN
)

// featureNames are those of ethtool, where it has others than the kernel.
var featureNames = map[string]string{
	"rx-checksum": "rx-checksumming", "tx-generic-segmentation": "generic-segmentation-offload", "rx-gro": "generic-receive-offload",
	"rx-lro": "large-receive-offload", "rx-vlan-hw-parse": "rx-vlan-offload", "tx-vlan-hw-insert": "tx-vlan-offload",
	"rx-ntuple-filter": "ntuple-filters", "rx-hashing": "receive-hashing",
}

// summaries are those that ethtool shows of several features: on if one of them is.
var summaries = map[string]string{
	"tx-checksum-": "tx-checksumming", "tx-scatter-gather": "scatter-gather", "tx-tcp": "tcp-segmentation-offload",
}

// parameters are groups of numbers that one command reads: those of a name, in
// the order of the structure.
var parameters = []struct {
	group   string
	command uint32
	names   []string
}{
	{"ring", getRings, []string{"", "", "", "", "rx", "rx-mini", "rx-jumbo", "tx"}},
	{"coalescing", getCoalescing, []string{"rx-usecs", "rx-frames", "rx-usecs-irq", "rx-frames-irq", "tx-usecs", "tx-frames", "tx-usecs-irq",
		"tx-frames-irq", "stats-block-usecs", "adaptive-rx", "adaptive-tx", "pkt-rate-low", "rx-usecs-low", "rx-frames-low", "tx-usecs-low",
		"tx-frames-low", "pkt-rate-high", "rx-usecs-high", "rx-frames-high", "tx-usecs-high", "tx-frames-high", "sample-interval"}},
	{"pause", getPause, []string{"autonegotiate", "rx", "tx"}},
	{"channels", getChannels, []string{"", "", "", "", "rx", "tx", "other", "combined"}},
	{"eee", getEEE, []string{"", "", "", "", "enabled", "tx-lpi", "tx-lpi-timer"}},
}

// notToBeRead: vector_get_ringparam() reads a queue that a tap does not have,
// and the kernel panics (seen with Linux 6.1).
var notToBeRead = map[string]uint32{"uml-vector": getRings}

// An ethtool asks drivers.
type ethtool struct {
	*Reading
	socket   int
	features []string // names of the kernel, the same for all devices
}

func (r *Reading) readEthtool(devices []device) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		r.unread("features of interfaces", err)
		return
	}
	defer unix.Close(socket)
	e := &ethtool{Reading: r, socket: socket}
	for _, d := range devices {
		e.read(d.name)
	}
}

func (e *ethtool) read(name string) {
	driver := e.readDriver(name)
	e.readFeatures(name)
	for _, p := range parameters {
		if notToBeRead[driver] == p.command {
			continue
		}
		b := command(p.command, 1+len(p.names))
		b = append(b, make([]byte, 32)...) // what newer kernels may add
		if err := e.ask(name, b); err != nil {
			e.unread(name+" "+p.group, err)
			continue
		}
		for i, parameter := range p.names {
			if parameter != "" {
				e.set(name+" "+p.group+" "+parameter, number(b[4+4*i:8+4*i]))
			}
		}
	}
	if b := command(getLinkSettings, 256); e.ask(name, b) == nil {
		// The kernel first says how many words its masks have, as a negative number.
		words := b[15]
		b = command(getLinkSettings, 256)
		b[15] = -words
		if err := e.ask(name, b); err != nil {
			e.unread(name+" speed", err)
		} else {
			e.set(name+" speed", speed(u32(b, 4)))
			e.set(name+" duplex", strings.Trim([]string{"half", "full", "unknown"}[min(int(b[8]), 2)], " "))
			e.set(name+" autonegotiation", onOff(b[11] != 0))
		}
	}
	e.readPrivateFlags(name)
	e.readDevice(name)
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func speed(s uint32) string {
	if s == 0xffffffff || s == 0 {
		return "unknown"
	}
	return fmt.Sprint(s, " Mbit/s")
}

// command is a structure of words that begins with its command.
func command(code uint32, words int) []byte {
	return append(binary.NativeEndian.AppendUint32(nil, code), make([]byte, 4*(words-1))...)
}

// ask asks the driver of an interface, which fills what it is given.
func (e *ethtool) ask(name string, b []byte) error {
	request := struct {
		name [unix.IFNAMSIZ]byte
		data *byte
		_    [16]byte
	}{data: &b[0]}
	copy(request.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(e.socket), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	runtime.KeepAlive(b)
	if errno != 0 {
		return errno
	}
	return nil
}

func (e *ethtool) readDriver(name string) (driver string) {
	b := command(getDriver, 49)
	if err := e.ask(name, b); err != nil {
		e.unread(name+" driver", err)
		return ""
	}
	driver = cString(b[4:36])
	e.set(name+" driver", driver)
	e.set(name+" driver version", cString(b[36:68]))
	e.set(name+" firmware", cString(b[68:100]))
	return driver
}

// strings are names that the kernel or a driver has.
func (e *ethtool) strings(name string, set uint32) (names []string, err error) {
	b := command(getSetInfo, 5)
	binary.NativeEndian.PutUint64(b[8:], 1<<set)
	if err := e.ask(name, b); err != nil {
		return nil, err
	}
	if binary.NativeEndian.Uint64(b[8:]) == 0 {
		return nil, unix.EOPNOTSUPP
	}
	count := int(u32(b, 16))
	b = append(command(getStrings, 3), make([]byte, count*stringLength)...)
	binary.NativeEndian.PutUint32(b[4:], set)
	binary.NativeEndian.PutUint32(b[8:], uint32(count))
	if err := e.ask(name, b); err != nil {
		return nil, err
	}
	for i := range count {
		names = append(names, cString(b[12+i*stringLength:12+(i+1)*stringLength]))
	}
	return names, nil
}

func (e *ethtool) readFeatures(name string) {
	var err error
	if e.features == nil {
		e.features, err = e.strings(name, features)
	}
	blocks := (len(e.features) + 31) / 32
	b := command(getFeatures, 2+4*blocks)
	binary.NativeEndian.PutUint32(b[4:], uint32(blocks))
	if err == nil {
		err = e.ask(name, b)
	}
	if err != nil {
		e.unread(name+" features", err)
		return
	}
	for _, summary := range summaries {
		e.set(name+" feature "+summary, "off")
	}
	for i, feature := range e.features {
		if feature == "" {
			continue
		}
		active := u32(b, 8+16*(i/32)+8)&(1<<(i%32)) != 0
		for prefix, summary := range summaries {
			if active && strings.HasPrefix(feature, prefix) {
				e.set(name+" feature "+summary, "on")
			}
		}
		if other, ok := featureNames[feature]; ok {
			feature = other
		}
		e.set(name+" feature "+feature, onOff(active))
	}
}

// readPrivateFlags reads switches that only this driver has.
func (e *ethtool) readPrivateFlags(name string) {
	names, err := e.strings(name, privateFlags)
	b := command(getPrivateFlags, 2)
	if err == nil && len(names) > 0 {
		err = e.ask(name, b)
	}
	if err != nil {
		e.unread(name+" private flags", err)
		return
	}
	for i, flag := range names {
		e.set(name+" private flag "+flag, onOff(u32(b, 4)&(1<<i) != 0))
	}
}
