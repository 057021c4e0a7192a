package udp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"
	"unsafe"

	"dumbbell/collectors/row"
	"dumbbell/traffic/socket"

	"golang.org/x/sys/unix"
)

const (
	receiveMessageCount = 32
	receiveBufferBytes  = 16 << 20
	controlBytes        = 128

	// linger is how long after the first end marker late datagrams are awaited.
	linger = time.Second

	// silenceMax is the longest silence that is reported interval by interval; a
	// longer one is a step of the clock.
	silenceMax = time.Minute
)

// A ReceiverConfig describes the receiving end of a flow.
type ReceiverConfig struct {
	Listen   netip.AddrPort
	From     netip.AddrPort // of the sender: the kernel keeps all others' datagrams away; invalid: anybody's are looked at
	Token    uint64
	Interval time.Duration        // of reports
	Report   func(ReceivedReport) // called at multiples of the interval of the wall clock, once data has come; may be nil
}

// A ReceivedReport is what has arrived since the start of a flow, up to a
// moment, and the one-way delays of what arrived since the report before.
// Delays are as right as the two hosts' clocks.
type ReceivedReport struct {
	UnixNs           int64  `json:"unix_ns"`
	ReceivedPackets  uint64 `json:"received_packets"`  // without duplicates
	ReceivedBytes    uint64 `json:"received_bytes"`    // of their payload
	LostPackets      uint64 `json:"lost_packets"`      // missing below the highest sequence number
	ReorderedPackets uint64 `json:"reordered_packets"` // of those received: overtaken by a later one (RFC 4737)
	DuplicatePackets uint64 `json:"duplicate_packets"`
	StalePackets     uint64 `json:"stale_packets"` // too far behind to tell whether late or duplicates; in no other count
	SocketDrops      uint64 `json:"socket_drops"`  // by this socket, whose buffer was full (a GRO train counts once); they are lost as well
	DelayPackets     uint64 `json:"delay_packets"` // whose delays follow
	DelayMinNs       int64  `json:"delay_min_ns"`
	DelayMeanNs      int64  `json:"delay_mean_ns"`
	DelayMaxNs       int64  `json:"delay_max_ns"`
}

// A ReceivedResult is what a receiver got. Its delays are those of the whole
// flow.
type ReceivedResult struct {
	ReceivedReport
	EndSeen        bool    `json:"end_seen"`     // an end marker came: what was lost at the end is known too
	ReceivedBps    float64 `json:"received_bps"` // payload, from the first arrival to the last
	FirstUnixNs    int64   `json:"first_unix_ns"`
	LastUnixNs     int64   `json:"last_unix_ns"`
	DelayP50Ns     int64   `json:"delay_p50_ns"`
	DelayP90Ns     int64   `json:"delay_p90_ns"`
	DelayP99Ns     int64   `json:"delay_p99_ns"`
	DelayP999Ns    int64   `json:"delay_p999_ns"`
	ForeignPackets uint64  `json:"foreign_packets"` // of another flow, or of no generator
	KernelStamps   bool    `json:"kernel_stamps"`   // arrivals are stamped by the kernel, not by this program
	GRO            bool    `json:"gro"`
	BufferBytes    int     `json:"buffer_bytes"` // of the socket
	CPUNs          int64   `json:"cpu_ns"`
}

// A Receiver is the receiving end of a flow.
type Receiver struct {
	config   ReceiverConfig
	fd       int
	messages []socket.Message
	iovecs   [receiveMessageCount]unix.Iovec
	control  [receiveMessageCount][controlBytes]byte

	sequences  sequences
	sent       uint64 // by the end marker
	bytes      uint64
	firstBytes uint64
	delays     percentiles
	all, part  delayStats // of the flow, of the running interval
	report     int64      // end of the running interval; 0 before the first datagram
	result     ReceivedResult
}

// NewReceiver makes the socket of a flow: datagrams queue there from now on.
func NewReceiver(config ReceiverConfig) (_ *Receiver, err error) {
	if config.Interval <= 0 {
		return nil, fmt.Errorf("the interval of reports must be positive, is %v", config.Interval)
	}
	fd, err := socket.Open(config.Listen.Addr())
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	r := &Receiver{config: config, fd: fd, delays: newPercentiles()}
	if r.result.BufferBytes, err = socket.SetReceiveBuffer(r.fd, receiveBufferBytes); err != nil {
		return nil, err
	}
	if err := unix.SetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1); err != nil {
		return nil, fmt.Errorf("asking for the socket's drops: %w", err)
	}
	r.result.KernelStamps = unix.SetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) == nil
	r.result.GRO = unix.SetsockoptInt(r.fd, unix.SOL_UDP, unix.UDP_GRO, 1) == nil
	timeout := unix.NsecToTimeval(min(config.Interval, lookInterval).Nanoseconds())
	if err := unix.SetsockoptTimeval(r.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return nil, fmt.Errorf("setting a timeout: %w", err)
	}
	if err := unix.Bind(r.fd, socket.Sockaddr(config.Listen)); err != nil {
		return nil, fmt.Errorf("binding to %v: %w", config.Listen, err)
	}
	if config.From.IsValid() {
		if err := unix.Connect(r.fd, socket.Sockaddr(config.From)); err != nil {
			return nil, fmt.Errorf("connecting to %v: %w", config.From, err)
		}
	}
	r.messages = make([]socket.Message, receiveMessageCount)
	buffers := make([]byte, receiveMessageCount<<16) // GRO fills up to 64 kB
	for i := range r.messages {
		r.iovecs[i].Base = &buffers[i<<16]
		r.iovecs[i].SetLen(1 << 16)
		r.messages[i].Iov = &r.iovecs[i]
		r.messages[i].SetIovlen(1)
		r.messages[i].Control = &r.control[i][0]
	}
	return r, nil
}

// Close closes the socket.
func (r *Receiver) Close() error { return unix.Close(r.fd) }

// Run receives until the sender's end markers, and what they may have
// overtaken, have come, or until the context ends.
func (r *Receiver) Run(ctx context.Context) (ReceivedResult, error) {
	runtime.LockOSThread() // for its CPU time
	defer runtime.UnlockOSThread()
	cpu := socket.ThreadCPU()
	err := r.receive(ctx)
	result := r.finish()
	result.CPUNs = (socket.ThreadCPU() - cpu).Nanoseconds()
	return result, err
}

// finish closes the last interval, and tells of the whole flow.
func (r *Receiver) finish() ReceivedResult {
	if r.report > 0 {
		r.closeInterval()
	}
	result := r.result
	result.ReceivedReport = r.counts()
	r.all.into(&result.ReceivedReport)
	if span := result.LastUnixNs - result.FirstUnixNs; span > 0 {
		result.ReceivedBps = float64(r.bytes-r.firstBytes) * 8e9 / float64(span)
	}
	result.DelayP50Ns, result.DelayP90Ns = r.delays.at(50), r.delays.at(90)
	result.DelayP99Ns, result.DelayP999Ns = r.delays.at(99), r.delays.at(99.9)
	return result
}

func (r *Receiver) receive(ctx context.Context) error {
	var deadline time.Time // once the end marker has come
	for ctx.Err() == nil {
		asked := time.Now()
		if r.result.EndSeen {
			if deadline.IsZero() {
				deadline = asked.Add(linger)
			}
			if r.sequences.unique == r.sent || asked.After(deadline) {
				return nil
			}
		}
		for i := range r.messages {
			r.messages[i].SetControllen(controlBytes)
		}
		n, err := socket.Receive(r.fd, r.messages)
		switch {
		case interrupted(err):
			continue
		case errors.Is(err, unix.EAGAIN):
			r.closeIntervals(asked.UnixNano()) // all that came before has been read
			continue
		case err != nil:
			return fmt.Errorf("receiving on %v: %w", r.config.Listen, err)
		}
		now := time.Now()
		for i := range n {
			r.take(i, now.UnixNano())
		}
		if n < len(r.messages) {
			// The kernel stamps and keeps what comes meanwhile: fewer, larger calls.
			sleep(wakeInterval - time.Since(now))
		}
	}
	return nil
}

// take counts the datagrams of one message, more than one if GRO joined them.
func (r *Receiver) take(i int, unixNs int64) {
	m := &r.messages[i]
	length := int(m.Len)
	segment := length
	told := socket.ParseControl(r.control[i][:m.Controllen])
	if told.UnixNs != 0 {
		unixNs = told.UnixNs
	}
	if told.Segment > 0 {
		segment = told.Segment
	}
	if told.Drops > 0 {
		r.result.SocketDrops = uint64(told.Drops)
	}
	payload := unsafe.Slice(r.iovecs[i].Base, length)
	for len(payload) > 0 {
		size := min(segment, len(payload))
		r.count(payload[:size], unixNs)
		payload = payload[size:]
	}
}

// count counts one datagram that arrived at a time.
func (r *Receiver) count(datagram []byte, unixNs int64) {
	h, err := decode(datagram)
	if err != nil || h.token != r.config.Token {
		r.result.ForeignPackets++
		return
	}
	if h.kind == kindEnd {
		r.result.EndSeen = true
		r.sent = h.sequence
		return
	}
	if r.report == 0 {
		interval := int64(r.config.Interval)
		r.report = unixNs - unixNs%interval + interval
		r.result.FirstUnixNs = unixNs
		r.firstBytes = uint64(len(datagram))
	}
	r.closeIntervals(unixNs)
	r.result.LastUnixNs = max(r.result.LastUnixNs, unixNs)
	before := r.sequences.unique
	r.sequences.add(h.sequence)
	if r.sequences.unique == before {
		return
	}
	r.bytes += uint64(len(datagram))
	delay := unixNs - h.unixNs
	r.part.add(delay)
	r.all.add(delay)
	r.delays.add(delay)
}

// closeIntervals reports the intervals that ended up to a time.
func (r *Receiver) closeIntervals(unixNs int64) {
	if r.report == 0 {
		return
	}
	interval := int64(r.config.Interval)
	if unixNs-r.report > int64(silenceMax) {
		r.closeInterval()
		r.report = unixNs - unixNs%interval + interval
	}
	for unixNs >= r.report {
		r.closeInterval()
	}
}

func (r *Receiver) closeInterval() {
	report := r.counts()
	report.UnixNs = r.report
	r.part.into(&report)
	r.part = delayStats{}
	r.report += int64(r.config.Interval)
	if r.config.Report != nil {
		r.config.Report(report)
	}
}

// counts are all counters so far, without delays.
func (r *Receiver) counts() ReceivedReport {
	return ReceivedReport{
		UnixNs:           r.result.LastUnixNs,
		ReceivedPackets:  r.sequences.unique,
		ReceivedBytes:    r.bytes,
		LostPackets:      r.sequences.lost(r.sent),
		ReorderedPackets: r.sequences.reordered,
		DuplicatePackets: r.sequences.duplicate,
		StalePackets:     r.sequences.stale,
		SocketDrops:      r.result.SocketDrops,
	}
}

// Time is when the report was made.
func (r ReceivedReport) Time() time.Time { return time.Unix(0, r.UnixNs) }

// AddFields adds the report to a row; delays only if there are any.
func (r ReceivedReport) AddFields(rows *row.Rows) {
	addCount(rows, "received_packets", r.ReceivedPackets)
	addCount(rows, "received_bytes", r.ReceivedBytes)
	addCount(rows, "lost_packets", r.LostPackets)
	addCount(rows, "reordered_packets", r.ReorderedPackets)
	addCount(rows, "duplicate_packets", r.DuplicatePackets)
	addCount(rows, "stale_packets", r.StalePackets)
	addCount(rows, "socket_drops", r.SocketDrops)
	addCount(rows, "delay_packets", r.DelayPackets)
	if r.DelayPackets > 0 {
		rows.Int("delay_min_ns", r.DelayMinNs)
		rows.Int("delay_mean_ns", r.DelayMeanNs)
		rows.Int("delay_max_ns", r.DelayMaxNs)
	}
}
