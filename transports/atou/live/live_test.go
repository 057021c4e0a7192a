package live

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"dumbbell/transports/atou/config"
	"dumbbell/transports/atou/handshake"
	"dumbbell/transports/atou/proto"
	"dumbbell/transports/atou/sim"
)

const (
	ms   = time.Millisecond
	soon = 20 * time.Second // a test waits so long for what has to come
)

var (
	token = handshake.NewToken([]byte("of these tests, and of no other"))
	ipv4  = netip.MustParseAddr("127.0.0.1")
)

// A running is a server whose flows are told once they have ended.
type running struct {
	*Server
	finished chan Finished
	stop     func() // and wait until it has
}

func start(t testing.TB, c ServeConfig) running {
	t.Helper()
	c.Token = token
	r := running{finished: make(chan Finished, 100)}
	c.Finished = func(f Finished) { r.finished <- f }
	var err error
	if r.Server, err = NewServer(c); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		r.Close()
	})
	t.Cleanup(r.stop)
	return r
}

func (r running) end(t *testing.T) Finished {
	t.Helper()
	select {
	case f := <-r.finished:
		return f
	case <-time.After(soon):
		t.Fatal("no flow has ended")
		panic("unreachable")
	}
}

// receives has room for all that these tests send.
func receives() config.Receiver {
	c := config.DefaultReceiver()
	c.Port, c.RcvBuf = 0, 16<<20
	return c
}

func segments(n uint64) config.Sender {
	c := config.DefaultSender()
	c.Host, c.MaxPkts, c.MaxTime = "receiver", n, 20*time.Second
	c.SndBuf, c.RcvBuf, c.Tick = 4<<20, 16<<20, 0
	return c
}

func transfer(t testing.TB, c SendConfig) Sent {
	t.Helper()
	c.Token = token
	sent, err := Send(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return sent
}

// A step is what a sender did, without its time.
type step struct {
	Kind proto.Kind
	Seg  uint64
}

func (s step) String() string {
	return fmt.Sprintf("%s %d", []string{"xmt", "rxt", "drop", "ack", "3duprxmit", "packrxmit", "timerxmit", "badack"}[s.Kind], s.Seg)
}

func recording(steps *[]step) func(*proto.Event) {
	return func(e *proto.Event) { *steps = append(*steps, step{e.Kind, e.Seg}) }
}

func TestTransfer(t *testing.T) {
	for name, test := range map[string]struct {
		address string
		mss     int
		mode    Mode
		noGSO   bool
	}{
		"IPv4":              {"127.0.0.1", 1460, Precise, false},
		"IPv6":              {"::1", 1440, Precise, false},
		"bulk":              {"127.0.0.1", 1460, Bulk, false},
		"bulk, IPv6":        {"::1", 1440, Bulk, false},
		"fragmented":        {"127.0.0.1", config.MaxMSS, Precise, false},
		"bulk, fragmented":  {"::1", 40000, Bulk, false},
		"least mss":         {"127.0.0.1", config.HeaderBytes, Precise, false},
		"bulk, least mss":   {"127.0.0.1", config.HeaderBytes, Bulk, false},
		"bulk, without GSO": {"127.0.0.1", 1460, Bulk, true},
	} {
		t.Run(name, func(t *testing.T) {
			withoutGSO = test.noGSO
			t.Cleanup(func() { withoutGSO = false })
			server := start(t, ServeConfig{Receiver: receives()}) // at all addresses
			c := segments(3000)
			c.MSS = test.mss
			if test.mss > 10000 {
				c.MaxPkts = 200
			}
			to := netip.AddrPortFrom(netip.MustParseAddr(test.address), server.Addr().Port())
			sent := transfer(t, SendConfig{Sender: c, To: to, Mode: test.mode})
			got := server.end(t)
			n := c.MaxPkts
			if sent.Stats.Una != n || sent.Stats.Out != n || !sent.Reported || sent.Receiver.Received != n || sent.Receiver.Bytes != n*uint64(c.MSS) {
				t.Errorf("sent %+v", sent)
			}
			if sent.Path.Foreign+sent.Path.Errors != 0 || sent.Config != server.config.Receiver || sent.Elapsed <= 0 {
				t.Errorf("sent %+v", sent)
			}
			if got.End != EndFin || got.Report != sent.Receiver || got.Fin == nil || got.Fin.Segments != n || got.Foreign != 0 || got.Mode != test.mode {
				t.Errorf("received %+v", got)
			}
			if want, _ := c.AppendText(nil); string(want) != string(text(t, got.Sender)) {
				t.Errorf("the receiver knows %+v of the sender", got.Sender)
			}
			if calls := sent.Path.Trains; test.mode == Precise && calls != n || sent.Path.GSO && calls >= n {
				t.Errorf("%d segments left in %d trains", n, calls)
			}
		})
	}
}

func text(t *testing.T, c config.Sender) []byte {
	t.Helper()
	b, err := c.AppendText(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestAsSimulated: with the same segments suppressed, a live transfer does what
// the simulated one does, step by step. All of it is clocked by ACKs, so that
// times make no difference.
func TestAsSimulated(t *testing.T) {
	drops := map[string][]uint64{
		"none":   nil,
		"one":    {100},
		"window": {100, 101, 105, 110, 111, 190, 300},
		"tail":   {597, 598, 599},
		"again":  {50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 400, 410, 420},
		"first":  {0, 1},
	}
	for name, set := range map[string]func(*config.Sender){
		"newreno":  func(*config.Sender) {},
		"reno":     func(c *config.Sender) { c.NewReno = false },
		"sack":     func(c *config.Sender) { c.SACK = true },
		"fack":     func(c *config.Sender) { c.SACK, c.FACK = true, true },
		"rampdown": func(c *config.Sender) { c.SACK, c.Rampdown = true, true },
		"prr":      func(c *config.Sender) { c.SACK, c.PRR, c.Reloss = true, true, true },
		"bursts":   func(c *config.Sender) { c.SACK, c.BurstLimit, c.InitSegs = true, 3, 10 },
		"scalable": func(c *config.Sender) { c.Scalable, c.ABC = true, true },
	} {
		for list, drop := range drops {
			for _, mode := range []Mode{Precise, Bulk} {
				t.Run(fmt.Sprintf("%s, %s, %v", name, list, mode), func(t *testing.T) {
					t.Parallel()
					c := segments(600)
					c.RcvrWin, c.DropList, c.Timeout = 60, drop, 300*ms
					set(&c)
					r := receives()
					r.SACK = c.SACK
					var want, got []step
					path := sim.Path{Delay: 10 * ms}
					if _, err := sim.Run(sim.Config{Sender: c, Receiver: r, Forward: path, Back: path, Observe: recording(&want)}); err != nil {
						t.Fatal(err)
					}
					server := start(t, ServeConfig{Receiver: r, Listen: ipv4})
					transfer(t, SendConfig{Sender: c, To: server.Addr(), Mode: mode, Observe: recording(&got)})
					compare(t, got, want)
				})
			}
		}
	}
}

func compare(t *testing.T, got, want []step) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			from := max(0, i-3)
			t.Fatalf("%d steps, simulated are %d; from step %d on\n%v, simulated\n%v", len(got), len(want), from,
				got[min(from, len(got)):min(i+4, len(got))], want[min(from, len(want)):min(i+4, len(want))])
		}
	}
}

// TestGap: segments leave on their schedule, never before it.
func TestGap(t *testing.T) {
	server := start(t, ServeConfig{Receiver: receives(), Listen: ipv4})
	c := segments(200)
	c.Gap, c.InitSegs = 2*ms, 100
	var left []time.Duration
	sent := transfer(t, SendConfig{Sender: c, To: server.Addr(), Observe: func(e *proto.Event) {
		if e.Kind == proto.Xmt {
			left = append(left, e.At)
		}
	}})
	for i, at := range left {
		if at < time.Duration(i)*c.Gap {
			t.Errorf("segment %d leaves at %v", i, at)
		}
	}
	if sent.Late.TotalCount() == 0 || sent.Late.Min() < 0 {
		t.Errorf("%d segments waited", sent.Late.TotalCount())
	}
	if _, err := Send(t.Context(), SendConfig{Sender: c, Token: token, To: server.Addr(), Mode: Bulk}); err == nil || !strings.Contains(err.Error(), "needs the mode precise") {
		t.Error(err)
	}
}

func TestStart(t *testing.T) {
	server := start(t, ServeConfig{Receiver: receives(), Listen: ipv4})
	at := time.Now().Add(300 * ms)
	sent := transfer(t, SendConfig{Sender: segments(10), To: server.Addr(), Start: at})
	if sent.Started.UnixNano() < at.UnixNano() {
		t.Errorf("started %v before its time", at.Sub(sent.Started))
	}
}

// TestNothingAllocated compares what a long transfer allocates with a short one.
func TestNothingAllocated(t *testing.T) {
	for _, mode := range []Mode{Precise, Bulk} {
		t.Run(mode.String(), func(t *testing.T) {
			server := start(t, ServeConfig{Receiver: receives(), Listen: ipv4})
			allocated := func(n uint64) uint64 {
				c := segments(n)
				c.DropList, c.Timeout = []uint64{100, 200, n - 1}, 50*ms
				recorder := &Recorder{Samples: func(*Sample) error { return nil }, Trace: nowhere{}, Events: nowhere{}}
				recorder.Start()
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				transfer(t, SendConfig{
					Sender: c, To: server.Addr(), Mode: mode, Observe: recorder.Observe, Sample: recorder.Sample, Interval: ms,
				})
				runtime.ReadMemStats(&after)
				if _, err := recorder.Close(); err != nil {
					t.Error(err)
				}
				return after.Mallocs - before.Mallocs
			}
			allocated(1000) // what is made once
			short, long := allocated(1000), allocated(50000)
			if long > short+100 { // the runtime's own
				t.Errorf("%d allocations for 1000 segments, %d for 50000", short, long)
			}
		})
	}
}

type nowhere struct{}

func (nowhere) Write(b []byte) (int, error) { return len(b), nil }

// BenchmarkTransfer has a segment as its operation, with both ends in one process.
func BenchmarkTransfer(b *testing.B) {
	for _, mode := range []Mode{Precise, Bulk} {
		b.Run(mode.String(), func(b *testing.B) {
			server := start(b, ServeConfig{Receiver: receives(), Listen: ipv4})
			c := segments(uint64(b.N))
			c.RcvrWin, c.InitSegs, c.MaxTime = 2000, 2000, 0
			b.SetBytes(int64(c.MSS))
			transfer(b, SendConfig{Sender: c, To: server.Addr(), Mode: mode})
		})
	}
}
