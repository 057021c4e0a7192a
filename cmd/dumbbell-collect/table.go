package main

import (
	"fmt"
	"io"

	"dumbbell/collectors/row"
	"dumbbell/collectors/tcpinfo"
)

// A table prints a line for each socket, for people.
type table struct {
	conn   *tcpinfo.Conn
	filter tcpinfo.Filter
	socket tcpinfo.Sample
	text   []byte
	to     io.Writer
}

// caStates are those of include/uapi/linux/tcp.h.
var caStates = []string{"Open", "Disorder", "CWR", "Recovery", "Loss"}

var columns = struct{ cwnd, ssthresh, srtt, rate, retrans, caState tcpinfo.Field }{
	tcpinfo.FieldByName("snd_cwnd"), tcpinfo.FieldByName("snd_ssthresh"), tcpinfo.FieldByName("srtt_us"),
	tcpinfo.FieldByName("delivery_rate_Bps"), tcpinfo.FieldByName("total_retrans"), tcpinfo.FieldByName("ca_state"),
}

func newTable(filter tcpinfo.Filter, to io.Writer) (*table, error) {
	conn, err := tcpinfo.Dial()
	if err != nil {
		return nil, err
	}
	t := &table{conn: conn, filter: filter, to: to}
	_, err = fmt.Fprintf(to, "%-15s %-47s %-6s %-8s %6s %8s %9s %10s %7s %9s\n",
		"time", "socket", "cc", "state", "cwnd", "ssthresh", "srtt ms", "Mbit/s", "retrans", "queue B")
	return t, err
}

func (t *table) Close() error { return t.conn.Close() }

func (t *table) Sample(*row.Rows) error {
	t.text = t.text[:0]
	if err := t.conn.Dump(t.filter, &t.socket, t.add); err != nil {
		return err
	}
	_, err := t.to.Write(t.text)
	return err
}

func (t *table) add() {
	s := &t.socket
	value := func(f tcpinfo.Field) uint64 { v, _ := s.Info.Value(f); return v }
	ssthresh := fmt.Sprint(value(columns.ssthresh))
	if value(columns.ssthresh) >= 1<<31-1 {
		ssthresh = "inf"
	}
	state := "-"
	if n := value(columns.caState); n < uint64(len(caStates)) {
		state = caStates[n]
	}
	t.text = fmt.Appendf(t.text, "%-15s %-47s %-6s %-8s %6d %8s %9.3f %10.2f %7d %9d\n",
		s.Time.Format("15:04:05.000000"), s.Tuple, s.CongestionControl, state, value(columns.cwnd), ssthresh,
		float64(value(columns.srtt))/1e3, float64(value(columns.rate))*8/1e6, value(columns.retrans), s.SendQueue)
}
