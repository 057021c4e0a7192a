package tcpinfo

import (
	"math"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestAgainstSS: of a connection at rest, ss and the sampler agree on every
// field that both print.
func TestAgainstSS(t *testing.T) {
	if _, err := exec.LookPath("ss"); err != nil {
		t.Skip("needs iproute2: ", err)
	}
	for _, control := range []string{"cubic", "bbr"} {
		t.Run(control, func(t *testing.T) {
			client, server, _ := pair(t, "tcp4")
			if raw, err := client.SyscallConn(); err == nil {
				var refused error
				check(t, raw.Control(func(fd uintptr) {
					refused = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, control)
				}))
				if refused != nil {
					t.Skip(refused)
				}
			}
			exchange(t, client, server, 3_000_000)
			exchange(t, server, client, 20_000)
			for _, tuple := range []Tuple{tuple(client), tuple(client).Mirror()} {
				awaitRest(t, tuple)
				f, before, after := flows(t, tuple), newRows(t), newRows(t)
				check(t, f.Sample(before))
				out, err := exec.Command("ss", "-tinmoeHO", "src", tuple.Local.String(), "dst", tuple.Remote.String()).Output()
				check(t, err)
				check(t, f.Sample(after))
				compare(t, string(out), fieldsOf(t, before, "tcp_info,flow=0")[0], fieldsOf(t, after, "tcp_info,flow=0")[0])
			}
		})
	}
}

// awaitRest waits until a socket has nothing to do; keep-alive does not count.
func awaitRest(t *testing.T, tuple Tuple) {
	t.Helper()
	c := dial(t)
	var s Sample
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		check(t, c.Get(TCP, tuple, &s))
		idle, _ := s.Info.Value(FieldByName("last_ack_recv_ms"))
		quiet, _ := s.Info.Value(FieldByName("last_data_recv_ms"))
		if (s.Timer == 0 || s.Timer == 2) && idle > 100 && quiet > 100 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("timer %d, last ACK %d ms ago", s.Timer, idle)
		}
	}
}

// asSS are names of ss that differ from ours, with what our value is multiplied by.
var asSS = map[string]struct {
	name   string
	factor float64
}{
	"rtt": {"srtt_us", 1e-3}, "rttvar": {"rttvar_us", 1e-3}, "rto": {"rto_us", 1e-3}, "ato": {"ato_us", 1e-3}, "minrtt": {"min_rtt_us", 1e-3},
	"rcv_rtt": {"rcv_rtt_us", 1e-3}, "mss": {"snd_mss", 1}, "rcvmss": {"rcv_mss", 1}, "cwnd": {"snd_cwnd", 1}, "ssthresh": {"snd_ssthresh", 1},
	"pacing_rate": {"pacing_rate_Bps", 8}, "delivery_rate": {"delivery_rate_Bps", 8}, "busy": {"busy_time_us", 1e-3},
	"rwnd_limited": {"rwnd_limited_us", 1e-3}, "sndbuf_limited": {"sndbuf_limited_us", 1e-3}, "notsent": {"notsent_bytes", 1}, "app_limited": {"delivery_rate_app_limited", 1},
	"retrans": {"total_retrans", 1}, "bw": {"bbr_bw_Bps", 8}, "mrtt": {"bbr_min_rtt_us", 1e-3}, "pacing_gain": {"bbr_pacing_gain", 1}, "cwnd_gain": {"bbr_cwnd_gain", 1},
	"r": {"skmem_rmem_alloc_bytes", 1}, "rb": {"skmem_rcvbuf_bytes", 1}, "t": {"skmem_wmem_alloc_bytes", 1}, "tb": {"skmem_sndbuf_bytes", 1},
	"f": {"skmem_fwd_alloc_bytes", 1}, "w": {"skmem_wmem_queued_bytes", 1}, "o": {"skmem_optmem_bytes", 1}, "bl": {"skmem_backlog_bytes", 1}, "d": {"skmem_drops", 1},
	"lastsnd": {"last_data_sent_ms", 1}, "lastrcv": {"last_data_recv_ms", 1}, "lastack": {"last_ack_recv_ms", 1},
}

// compare checks each value in the output of ss, such as
//
//	ESTAB 0 0 a:p b:q ino:1 sk:2 cgroup:/ <-> skmem:(r0,rb131072,t0,...) ts sack cubic wscale:7,7 rto:204 rtt:0.03/0.02 ...
func compare(t *testing.T, ss string, before, after map[string]string) {
	t.Helper()
	values := make(map[string]string)
	words := strings.Fields(ss)
	for i, w := range words {
		switch name, value, ok := strings.Cut(w, ":"); {
		case strings.HasPrefix(w, "skmem:("):
			for _, part := range strings.Split(strings.Trim(value, "()"), ",") {
				m := regexp.MustCompile(`^([a-z]+)(\d+)$`).FindStringSubmatch(part)
				values[m[1]] = m[2]
			}
		case strings.HasPrefix(w, "bbr:("):
			for _, part := range strings.Split(strings.Trim(value, "()"), ",") {
				k, v, _ := strings.Cut(part, ":")
				values[k] = v
			}
		case name == "wscale" && ok:
			values["snd_wscale"], values["rcv_wscale"], _ = strings.Cut(value, ",")
		case name == "rtt" && ok:
			values["rtt"], values["rttvar"], _ = strings.Cut(value, "/")
		case name == "retrans" && ok:
			_, values["retrans"], _ = strings.Cut(value, "/")
		case w == "app_limited":
			values[w] = "1"
		case w == "pacing_rate" || w == "delivery_rate":
			values[w] = words[i+1]
		case name == "sk" && ok:
			cookie, err := strconv.ParseUint(value, 16, 64)
			check(t, err)
			values["cookie"] = strconv.FormatUint(cookie, 10)
		case ok && i > 4 && name != "ino" && name != "cgroup" && name != "timer":
			values[name] = value
		}
	}
	if len(values) < 25 {
		t.Fatalf("ss printed %d values: %s", len(values), ss)
	}
	for name, text := range values {
		text = regexp.MustCompile(`^[0-9.e+]+`).FindString(text)
		want, err := strconv.ParseFloat(text, 64)
		check(t, err)
		ours, factor := name, 1.0
		if as, ok := asSS[name]; ok {
			ours, factor = as.name, as.factor
		}
		value, ok := before[ours]
		if !ok {
			t.Errorf("ss prints %s, the sampler has no %s", name, ours)
			continue
		}
		got, err := strconv.ParseFloat(value, 64)
		check(t, err)
		got *= factor
		if strings.HasPrefix(ours, "last_") { // time passes
			later, err := strconv.ParseFloat(after[ours], 64)
			check(t, err)
			if want < got || want > later {
				t.Errorf("%s: ss says %v, the sampler %v before and %v after it", ours, want, got, later)
			}
			continue
		}
		if math.Abs(got-want) > 1e-5*math.Abs(want) { // ss prints six digits
			t.Errorf("%s: ss says %v, the sampler %v", ours, want, got)
		}
	}
	t.Logf("%d values agree", len(values))
	if !strings.Contains(ss, before["congestion_control"]) {
		t.Errorf("congestion control %s is not in %s", before["congestion_control"], ss)
	}
}
