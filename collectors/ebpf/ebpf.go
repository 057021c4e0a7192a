// Package ebpf counts of TCP connections what tcp_info does not tell: duplicate
// ACKs, reductions of the congestion window by their cause, stalls of the
// host's own queue, and samples of the RTT. Programs in the kernel (counters.c)
// count at each segment; their counters outlive the connection until they are
// forgotten, so that its last row has its totals.
package ebpf

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"dumbbell/collectors/row"
	"dumbbell/collectors/tcpinfo"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// ErrUnavailable says that this host, or this user, cannot count by eBPF.
var ErrUnavailable = errors.New("eBPF is not available")

const kernelTypes = "/sys/kernel/btf/vmlinux"

// counters.o is made of counters.c by make ebpf.
//
//go:embed counters.o
var object []byte

// Fields are the counters as rows have them, in the order of struct counters.
var Fields = [...]string{
	"segs_seen",
	"dup_acks_in",
	"congestion_signals", "signals_fast_retransmit", "signals_timeout", "signals_ecn", "signals_send_stall", "signals_other",
	"fast_retransmits",
	"send_stalls",
	"rtt_samples", "rtt_sum_us", "rtt_last_us", "rtt_min_us", "rtt_max_us",
}

// A connection without an RTT sample has no fields from rttLast on.
var rttSamples, rttLast = Field("rtt_samples"), Field("rtt_last_us")

// Field is the index of a name in Fields. It panics for a name that is not
// there: names are constants of the program.
func Field(name string) int {
	i := slices.Index(Fields[:], name)
	if i < 0 {
		panic("ebpf: no field " + name)
	}
	return i
}

// Values are the counters of a connection, in the order of Fields.
type Values [len(Fields)]int64

// Known are those that are measurements.
func (v *Values) Known() []int64 {
	if v[rttSamples] == 0 {
		return v[:rttLast]
	}
	return v[:]
}

var keys = func() (keys []row.Key) {
	for _, name := range Fields {
		keys = append(keys, row.NewKey(name))
	}
	return keys
}()

// connection is the structure of that name in counters.c.
type connection struct {
	Counters Values
	_        [24]byte // what the programs keep for themselves
}

// Counters count connections while they are open.
type Counters struct {
	collection *ebpf.Collection
	links      []link.Link
	inexact    error
	asked      uint64
	found      connection
	dead       map[uint64]bool // connections that were not alive at the sweep before
}

// OpenFlows begins to count connections known in advance, those between two of
// their ports in this network namespace. The error is ErrUnavailable where
// programs cannot be loaded.
func OpenFlows(flows []tcpinfo.Flow) (*Counters, error) {
	var ports []uint16
	for _, f := range flows {
		ports = append(ports, f.Tuple.Local.Port(), f.Tuple.Remote.Port())
	}
	return open(ports, 2)
}

// OpenPorts begins to count all connections of this network namespace that
// have one of the ports at either end; without ports, all.
func OpenPorts(ports []uint16) (*Counters, error) {
	if len(ports) == 0 {
		return open(nil, 0)
	}
	return open(ports, 1)
}

// Programs, by where they run. Of the two ways to see stalls the first has the
// kernel's own verdict, the second needs no programs behind functions.
var (
	common   = []string{"inet_sock_set_state", "tcp_probe", "tcp_cong_state_set"}
	verdicts = append(slices.Clone(common), "ip_queue_xmit", "inet6_csk_xmit")
	fallback = append(slices.Clone(common), "kfree_skb")
)

// open counts connections of whose two ports so many are among these.
func open(ports []uint16, ends uint32) (*Counters, error) {
	if _, err := os.Stat(kernelTypes); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: the kernel does not describe its types (no %s)", ErrUnavailable, kernelTypes)
	}
	spec, err := specification(ports, ends)
	if err != nil {
		return nil, err
	}
	c, inexact := load(spec, verdicts...)
	if inexact == nil {
		return c, nil
	}
	if c, err = load(spec, fallback...); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	c.inexact = inexact
	return c, nil
}

// specification is the object with what is asked for.
func specification(ports []uint16, ends uint32) (*ebpf.CollectionSpec, error) {
	var namespace syscall.Stat_t
	if err := syscall.Stat("/proc/thread-self/ns/net", &namespace); err != nil {
		return nil, fmt.Errorf("looking for the network namespace: %w", err)
	}
	var counted [1 << 16]byte
	for _, p := range ports {
		counted[p] = 1
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	if err != nil {
		return nil, err
	}
	return spec, errors.Join(spec.Variables["ports"].Set(counted), spec.Variables["ends"].Set(ends),
		spec.Variables["netns"].Set(uint32(namespace.Ino)))
}

// load loads and attaches programs.
func load(spec *ebpf.CollectionSpec, programs ...string) (c *Counters, err error) {
	spec = spec.Copy()
	for name := range spec.Programs {
		if !slices.Contains(programs, name) {
			delete(spec.Programs, name)
		}
	}
	c = new(Counters)
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if c.collection, err = ebpf.NewCollection(spec); err != nil {
		return c, refusal(err, programs)
	}
	for _, name := range programs {
		l, err := link.AttachTracing(link.TracingOptions{Program: c.collection.Programs[name]})
		if err != nil {
			return c, refusal(err, programs)
		}
		c.links = append(c.links, l)
	}
	return c, nil
}

// refusal says what the kernel refused. The library's own words for EPERM are
// of a limit that kernels no longer have.
func refusal(err error, programs []string) error {
	if errors.Is(err, syscall.EPERM) {
		err = fmt.Errorf("%w: they need CAP_BPF and CAP_PERFMON, and a kernel that allows them", syscall.EPERM)
	}
	return fmt.Errorf("programs at %s: %w", strings.Join(programs, ", "), err)
}

// Inexact is why send_stalls counts dropped packets and not the kernel's own
// verdicts, or nil.
func (c *Counters) Inexact() error { return c.inexact }

// Read returns the counters of a connection, nil for one that is not counted.
// They are valid until the next call.
func (c *Counters) Read(cookie uint64) (*Values, error) {
	c.asked = cookie // here, so that it is not allocated
	err := c.collection.Maps["connections"].Lookup(&c.asked, &c.found)
	if err == nil {
		return &c.found.Counters, nil
	}
	if !errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, fmt.Errorf("reading counters: %w", err)
	}
	var refused uint64
	if err := c.collection.Variables["refused"].Get(&refused); err != nil {
		return nil, fmt.Errorf("reading counters: %w", err)
	}
	if refused > 0 {
		return nil, fmt.Errorf("reading counters: there are more than %d connections", c.collection.Maps["connections"].MaxEntries())
	}
	return nil, nil
}

// AddFields adds the counters of a connection to a row, if it is counted.
func (c *Counters) AddFields(cookie uint64, rows *row.Rows) error {
	values, err := c.Read(cookie)
	if values != nil {
		known := values.Known()
		rows.Ints(keys[:len(known)], known)
	}
	return err
}

// Forget gives back what is kept of a connection that has ended.
func (c *Counters) Forget(cookie uint64) error {
	err := c.collection.Maps["connections"].Delete(&cookie)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("forgetting counters: %w", err)
	}
	return nil
}

// Sweep gives back what is kept of connections whose end was lost: it is that of
// those that were not alive at the sweep before and are not now. One that began
// since alive looked is not among them.
func (c *Counters) Sweep(alive func(cookie uint64) bool) error {
	var (
		cookie  uint64
		value   connection
		gone    []uint64
		dead    = make(map[uint64]bool)
		entries = c.collection.Maps["connections"].Iterate()
	)
	for entries.Next(&cookie, &value) {
		switch {
		case alive(cookie):
		case c.dead[cookie]:
			gone = append(gone, cookie)
		default:
			dead[cookie] = true
		}
	}
	c.dead = dead
	var failures []error
	if err := entries.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) { // the next sweep goes on
		failures = append(failures, fmt.Errorf("sweeping counters: %w", err))
	}
	for _, cookie := range gone {
		failures = append(failures, c.Forget(cookie))
	}
	return errors.Join(failures...)
}

// Close ends the programs.
func (c *Counters) Close() error {
	var failures []error
	for _, l := range c.links {
		failures = append(failures, l.Close())
	}
	if c.collection != nil {
		c.collection.Close()
	}
	return errors.Join(failures...)
}
