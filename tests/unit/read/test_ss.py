"""Logs of ss, of several versions."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from dumbbell.read.directory import told
from dumbbell.read.ss import words
from read.files import made, refused
from read.mutate import FILES

TIME = "1795801584.{}\n"
HEAD = "State Recv-Q Send-Q Local Address:Port  Peer Address:Port Process\n"
SOCKET = "ESTAB 0      815664     192.0.2.1:59958    192.0.2.2:5201\n"
INFO = (
    "\t cubic wscale:10,10 rto:232 rtt:29.951/0.019 mss:1448 pmtu:1500 rcvmss:536 advmss:1448 cwnd:86"
    " bytes_sent:{0} bytes_acked:{0} segs_out:1361 segs_in:1039 data_segs_out:1359 send 33261794bps"
    " pacing_rate 24183336bps delivery_rate 19297016bps delivered:1286 busy:{1}ms unacked:86 minrtt:20.466"
    " snd_wnd:2301952\n"
)
SYN_RTO_US = 1_000_000  # until the handshake has told an RTT there are no counters
ONE = HEAD + SOCKET + INFO.format(1, 1)
VERSIONS = sorted(path.name for path in FILES.glob("ss-*.txt") if "receiver" not in path.name)


def log(*outputs: tuple[int, int]) -> bytes:
    """A log with bytes and busy milliseconds at each second."""
    parts = [
        TIME.replace("584", str(584 + at)).format(0) + HEAD + SOCKET + INFO.format(*numbers)
        for at, numbers in enumerate(outputs)
    ]
    return "".join(parts).encode()


@pytest.mark.parametrize("name", VERSIONS)
def test_every_version_tells_the_counters_of_limits(name: str, tmp_path: Path) -> None:
    found = told(FILES / name, tmp_path)
    rows = found.table("tcp_info").collect()
    sender = max(found.ends.values(), key=lambda end: end.sent_bytes)
    own = rows.filter(number=sender.number).filter(pl.col("rto_us") != SYN_RTO_US)
    assert own.height > 1
    needed = ("busy_time_us", "unacked", "snd_cwnd", "snd_mss", "total_retrans", "notsent_bytes", "srtt_us")
    assert own.select(pl.col(needed).null_count()).sum_horizontal().item() == 0
    assert own["bytes_acked"].is_sorted()
    assert own["busy_time_us"].is_sorted()
    assert (own["srtt_us"] > 20_000).all(), "the path has 20 ms"
    assert own["congestion_control"].unique().to_list() in (["bbr"], ["cubic"], ["reno"])
    in_seconds = (
        {"samples with the time of the one before: write fractions of seconds"} if "-ts" in name else set()
    )
    assert found.skipped.keys() - {"sockets that are not connected", "sockets that are not TCP"} == in_seconds


def test_what_is_left_out_is_0_where_ss_knows_it() -> None:
    values = words(INFO.format(10, 5))
    assert "retrans" not in values
    assert (values["busy_time_us"], values["snd_cwnd"], values["srtt_us"]) == (5000, 86, 29951)
    assert values["pacing_rate_Bps"] == 24183336 / 8
    assert values["congestion_control"] == "cubic"


def test_rates_of_old_versions_have_prefixes() -> None:
    values = words("reno rto:204 send 231.7Mbps pacing_rate 462.9Mbps/1.0Gbps app_limited")
    assert values["pacing_rate_Bps"] == 462.9e6 / 8
    assert values["max_pacing_rate_Bps"] == 1e9 / 8
    assert values["delivery_rate_app_limited"] == 1


def test_log_becomes_a_flow_with_its_limits(tmp_path: Path) -> None:
    (path := tmp_path / "log").write_bytes(log(*((1_000_000 * n, 500 * n) for n in range(1, 12))))
    _, flows = made(tmp_path, path)
    (flow,) = flows.rows(named=True)
    assert (flow["src"], flow["dst"], flow["congestion_control"]) == ("192.0.2.1", "192.0.2.2", "cubic")
    assert flow["goodput_bps"] == pytest.approx(8e6)
    assert flow["app_limited"] == pytest.approx(0.5)
    assert flow["cwnd_slow_start"] == pytest.approx(0.5), "its window was full half of the time"


def test_counters_that_begin_again_are_another_connection(tmp_path: Path) -> None:
    outputs = [(1_000_000 * n, n) for n in (1, 2, 3)] + [(1000 * n, n) for n in (1, 2, 3)]
    (path := tmp_path / "log").write_bytes(log(*outputs))
    _, flows = made(tmp_path, path)
    assert flows["goodput_bps"].to_list() == pytest.approx([8e6, 8e3])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (ONE + HEAD + SOCKET, "line 4: ss wrote again, and there is no time in between."),
        ((SOCKET + INFO.format(1, 1)) * 2, "line 3: 192.0.2.1:59958 to 192.0.2.2:5201 comes twice"),
        (HEAD + SOCKET.replace("5201", "ssh"), "line 2: the port 'ssh' is a name, which -n prevents."),
        (HEAD + SOCKET, "line 2: no socket has a line about TCP"),
        (HEAD + SOCKET + "\t cubic rto:99999999999999999999", "line 3: rto_us is 9999999999999999"),
        (HEAD + SOCKET + "\t cubic rto:fast", "line 3: 'rto:fast' is not as ss writes it"),
        (HEAD + SOCKET.replace("2.1:", "2.999:"), "line 2: '192.0.2.999' does not appear to be an IPv4"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_line(content: str, message: str, tmp_path: Path) -> None:
    found = refused(content.encode(), tmp_path)
    assert found.startswith(message)
    assert "Write a log with: while sleep" in found
