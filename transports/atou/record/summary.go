package record

import (
	"fmt"
	"time"

	"dumbbell/transports/atou/config"
	"dumbbell/transports/atou/proto"
)

// A Summary is what the sender prints at its end.
type Summary struct {
	Program  string // and its revision
	Started  time.Time
	From, To string // hosts
	Config   config.Sender
	DelAck   time.Duration // of the receiver
	Stats    proto.Stats
	Elapsed  time.Duration
}

// Append appends the summary. KB are 1000 bytes. The page that the samples come
// from has lost its line breaks; a line begins here at each "config:", and
// where the subject changes.
func (s *Summary) Append(b []byte) []byte {
	c, st := &s.Config, &s.Stats
	secs, mss := s.Elapsed.Seconds(), float64(c.MSS)
	avg := st.AvgRTT().Seconds()
	good := float64(st.Una) * mss
	sent := float64(st.Out) * mss
	goodput := ratio(good, secs) // bytes/s
	line := func(format string, args ...any) { b = fmt.Appendf(b, format+"\n", args...) }

	line("config: %s port %d debug %d %s", s.Program, c.Port, c.Debug, s.Started.Format(time.ANSIC))
	line("config: initsegs %d mss %d tick %f timeout %f", c.InitSegs, c.MSS, c.Tick.Seconds(), c.Timeout.Seconds())
	line("config: rcvrwin %d increment %d multiplier %f thresh_init %f", c.RcvrWin, c.Increment, c.Multiplier, c.ThreshInit)
	line("config: newreno %d sack %d delack %v maxpkts %d burst_limit %d dup_thresh %d",
		bit(c.NewReno), bit(c.SACK), float64(s.DelAck)/float64(time.Millisecond), c.MaxPkts, c.BurstLimit, c.DupThresh)
	line("config: sndbuf %d rcvbuf %d", c.SndBuf, c.RcvBuf)
	line("%s => %s %f Mbs win %d rxmts %d", s.From, s.To, goodput*8/1e6, c.RcvrWin, st.Rxmts)
	line("%f secs %.0f good bytes goodput %f KBs %f Mbs", secs, good, goodput/1e3, goodput*8/1e6)
	line("pkts in %d out %d enobufs %d", st.In, st.Out, st.Enobufs)
	line("total bytes out %.0f loss %.3f %% %f Mbs", sent, 100*ratio(float64(st.Rxmts), float64(st.Out)), ratio(sent*8/1e6, secs))
	line("rxmts %d dup3s %d packs %d timeouts %d dups %d badacks %d maxack %d maxburst %d",
		st.Rxmts, st.Dup3s, st.Packs, st.Timeouts, st.Dups, st.BadAcks, st.MaxAck, st.MaxBurst)
	line("minrtt %f maxrtt %f avrgrtt %f rto %f srtt %f rttvar %f", st.MinRTT.Seconds(), st.MaxRTT.Seconds(), avg,
		(st.SRTT + 4*st.RTTVar).Seconds(), st.SRTT.Seconds(), st.RTTVar.Seconds()) // the rto without its least value
	line("win/rtt = %f Mbs bwdelay = %d KB %d segs", ratio(float64(c.RcvrWin)*mss*8/1e6, avg),
		int64(goodput*avg/1e3), int64(goodput*avg/mss))
	line("snd_nxt %d snd_cwnd %d snd_una %d ssthresh %d snd_max %d", st.Nxt, st.Cwnd, st.Una, st.Ssthresh, st.Max)
	return b
}

// ratio is 0 where nothing has been measured.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
