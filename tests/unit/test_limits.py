"""What limited a flow, of samples that were made up, and of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from damage import edit
from hypothesis import given
from hypothesis import strategies as st
from plan.plans import planned

from dumbbell import analysis
from dumbbell.execution.collect import collect
from dumbbell.plan.path import Policer
from dumbbell.report.pages.run import Report
from dumbbell.studies.limits import Numbers, sentence

MS = 1_000_000
SECOND = 1000 * MS
MSS = 1448
INFINITE = 2**31 - 1
OPEN, RECOVERY = 0, 3


def sampled(*rows: dict[str, Any], flow: str = "f", every_ms: int = 100) -> pl.DataFrame:
    """Samples of a sender that is limited by its cwnd; what is not given is as before."""
    now: dict[str, Any] = {
        "flow": flow,
        "stream": "0",
        "side": "sender",
        "host": "sender1",
        **dict.fromkeys(("busy_time_us", "rwnd_limited_us", "sndbuf_limited_us"), 0),
        **dict.fromkeys(("sacked", "lost", "retrans", "total_retrans", "delivered_ce"), 0),
        "ca_state": OPEN,
        "snd_mss": MSS,
        "snd_cwnd": 10,
        "snd_ssthresh": INFINITE,
        "unacked": 10,
        "snd_wnd": 10**6,
        "notsent_bytes": 10**5,
        "pacing_rate_Bps": 10**6,
        "max_pacing_rate_Bps": None,
        "skmem_wmem_queued_bytes": 10**5,
        "skmem_sndbuf_bytes": 10**6,
    }
    table = []
    for i, row in enumerate(rows):
        now |= row
        table.append(now | {"t_ns": i * every_ms * MS})
    return pl.DataFrame(table, infer_schema_length=None)


def busy(ms: int, **more: Any) -> dict[str, Any]:
    return {"busy_time_us": 1000 * ms, **more}


def shares(*rows: dict[str, Any], cpu_core: pl.DataFrame | None = None) -> dict[str, float]:
    """The shares that are not 0."""
    limited = analysis.limits(sampled(*rows), cpu_core)
    found = analysis.limit_shares(limited, (0, (len(rows) - 1) * 100 * MS))
    assert found is not None
    return {name: round(share, 6) for name, share in found.items() if share}


def cores(*idle_ms: int, host: str = "sender1") -> pl.DataFrame:
    """Samples of a host's two cores each 100 ms, the first of which was idle for so long before each."""
    total = [sum(idle_ms[: i + 1]) for i in range(len(idle_ms))]
    rows = [
        {
            "host": host,
            "cpu": cpu,
            "t_ns": i * 100 * MS,
            "idle_ms": idle if cpu == "0" else 100 * i,
            "iowait_ms": 0,
        }
        for i, idle in enumerate(total)
        for cpu in ("0", "1")
    ]
    return pl.DataFrame(rows)


APP = {"unacked": 5, "notsent_bytes": 0}
WINDOW_FULL = {"unacked": 5, "snd_wnd": 5 * MSS}


def test_without_data_the_application_is_the_limit() -> None:
    found = shares(busy(0), busy(25), busy(50))
    assert found == {"app_limited": 0.75, "cwnd_limited": 0.25, "cwnd_slow_start": 0.25}


def test_what_is_written_and_acknowledged_at_once_is_the_applications_limit() -> None:
    # Data in flight makes it busy; nothing waits to be sent, and the window would take more.
    assert shares(busy(0, **APP), busy(100), busy(200)) == {"app_limited": 1.0}


def test_the_kernel_counts_window_and_buffer() -> None:
    rows = (busy(0, **WINDOW_FULL), busy(100, rwnd_limited_us=90_000), busy(200, rwnd_limited_us=150_000))
    found = shares(*rows, busy(300, **APP, snd_wnd=10**6, sndbuf_limited_us=60_000))
    assert found == {"rwnd_limited": 0.5, "sndbuf_limited": 0.2, "app_limited": 0.3}


def test_a_full_buffer_that_the_kernel_does_not_count() -> None:
    full = APP | {"skmem_wmem_queued_bytes": 66_120, "skmem_sndbuf_bytes": 16_384}
    assert shares(busy(0, **full), busy(100), busy(200, sndbuf_limited_us=30_000)) == {"sndbuf_limited": 1.0}
    assert shares(busy(0, **full | {"unacked": 10}), busy(100))["cwnd_limited"] == 1
    room = full | {"skmem_wmem_queued_bytes": 10_000}  # less than two thirds: a writer would have been woken
    assert shares(busy(0, **room), busy(100)) == {"app_limited": 1.0}


def test_what_no_sample_tells_is_not_guessed() -> None:
    found = shares(busy(0, **WINDOW_FULL), busy(100, rwnd_limited_us=90_000))
    assert found == {"rwnd_limited": 0.9, "limit_unknown": 0.1}


def test_a_segment_that_waits_for_the_rest_of_it_is_nothing_to_send() -> None:
    assert shares(busy(0, unacked=5, notsent_bytes=MSS - 1), busy(100)) == {"app_limited": 1.0}


def test_pacing_is_a_limit_only_where_it_was_asked_for() -> None:
    paced = {"unacked": 5, "max_pacing_rate_Bps": 10**6}
    assert shares(busy(0, **paced), busy(100)) == {"pacing_limited": 1.0}
    by_control = {"unacked": 5, "pacing_rate_Bps": 10**5}
    assert shares(busy(0, **by_control), busy(100))["cwnd_limited"] == 1
    below_it = paced | {"pacing_rate_Bps": 10**5}
    assert shares(busy(0, **below_it), busy(100))["cwnd_limited"] == 1


def test_why_the_window_was_not_larger() -> None:
    rows = (
        busy(0),
        busy(100),  # slow start
        busy(200, snd_ssthresh=10),  # left it by the delay
        busy(300, snd_cwnd=7, snd_ssthresh=7, unacked=7, ca_state=RECOVERY, total_retrans=3),
        busy(400, ca_state=OPEN),  # after the loss
        busy(500, delivered_ce=4),
    )
    cause = {"cwnd_slow_start": 0.2, "cwnd_delay": 0.2, "cwnd_loss": 0.4, "cwnd_ecn": 0.2}
    assert shares(*rows) == {"cwnd_limited": 1.0} | cause


def test_a_retransmission_that_bbr_does_not_heed() -> None:
    rows = (busy(0, bbr_bw_Bps=10**6), busy(100, total_retrans=5))
    assert shares(*rows) == {"cwnd_limited": 1.0, "cwnd_delay": 1.0}


def test_a_busy_processor_takes_what_application_and_window_had() -> None:
    app = (busy(0, **APP), busy(50), busy(100))
    assert shares(*app, cpu_core=cores(0, 0, 0)) == {"cpu_limited": 1.0}
    assert shares(*app, cpu_core=cores(0, 0, 80)) == {"cpu_limited": 0.5, "app_limited": 0.5}
    assert shares(*app, cpu_core=cores(0, 0, 0, host="router")) == {"app_limited": 1.0}
    window = (busy(0, **WINDOW_FULL), busy(100, rwnd_limited_us=100_000))
    assert shares(*window, cpu_core=cores(0, 0)) == {"rwnd_limited": 1.0}
    both = pl.concat(
        [sampled(*window), sampled({}, {}).with_columns(side=pl.lit("receiver"), host=pl.lit("r"))]
    )
    limited = analysis.limits(both, cores(0, 0, host="r"))
    assert analysis.limit_shares(limited, (0, 100 * MS)) == dict.fromkeys(
        (*analysis.LIMITS, *analysis.CAUSES), 0.0
    ) | {"cpu_limited": 1.0}


@pytest.mark.parametrize(
    "damaged",
    [
        {"busy_time_us": 40_000},  # went back
        {"rwnd_limited_us": None},
        {"rwnd_limited_us": 150_000},  # more than it was busy
        {"busy_time_us": 400_000},  # more than there was time
    ],
)
def test_counters_that_contradict_each_other_are_told(damaged: dict[str, Any]) -> None:
    good = busy(100), busy(200)
    assert shares(busy(0), *good)["cwnd_limited"] == 1
    found = shares(busy(0), busy(100), busy(200) | damaged)
    assert found["limit_unknown"] == 0.5
    assert found["cwnd_limited"] == 0.5


def test_nothing_is_said_without_the_counters() -> None:
    rows = sampled(busy(0), busy(100))
    assert analysis.limits(rows.drop("busy_time_us")).is_empty()
    none = rows.with_columns(busy_time_us=pl.lit(None, pl.Int64))
    assert analysis.limit_shares(analysis.limits(none), (0, SECOND)) is None
    assert analysis.limit_shares(analysis.limits(rows), (5 * SECOND, 6 * SECOND)) is None


def test_an_edge_of_the_window_within_an_interval() -> None:
    limited = analysis.limits(sampled(busy(0, **APP), busy(0), busy(100, unacked=10, notsent_bytes=10**5)))
    found = analysis.limit_shares(limited, (50 * MS, 150 * MS))
    assert found is not None
    assert (found["app_limited"], found["cwnd_limited"]) == (0.5, 0.5)


def test_jiffies_do_not_make_an_application_of_a_busy_flow() -> None:
    # The kernel's counter grows by 96 and 104 ms in turn; the flow was busy all the time.
    ticks = [busy(100 * i + (4 if i % 2 else 0)) for i in range(11)]
    assert shares(*ticks)["cwnd_limited"] == pytest.approx(1, abs=1e-9)


KINDS = st.sampled_from([{}, APP, WINDOW_FULL, {"unacked": 5, "max_pacing_rate_Bps": 10**6}])
GROWN = st.tuples(*[st.integers(-20, 160)] * 3)


@given(st.lists(st.tuples(KINDS, GROWN, st.booleans()), min_size=1, max_size=20), st.data())
def test_shares_add_up_whatever_the_counters_say(
    steps: list[tuple[dict[str, Any], tuple[int, int, int], bool]], data: st.DataObject
) -> None:
    plain = {"unacked": 10, "notsent_bytes": 10**5, "snd_wnd": 10**6, "max_pacing_rate_Bps": None}
    total, rows = [0, 0, 0], [plain]
    for kind, grown, lost in steps:
        total = [max(0, had + 1000 * more) for had, more in zip(total, grown, strict=True)]
        counters = zip(("busy_time_us", "rwnd_limited_us", "sndbuf_limited_us"), total, strict=True)
        rows.append(plain | kind | dict(counters) | {"ca_state": RECOVERY if lost else OPEN})
    limited = analysis.limits(sampled(*rows))
    start = data.draw(st.integers(0, 100 * len(steps) - 1))
    end = data.draw(st.integers(start + 1, 100 * len(steps) + 50))
    found = analysis.limit_shares(limited, (start * MS, end * MS))
    if found is None:  # nothing of it is known
        return
    assert min(found.values()) >= 0
    assert sum(found[name] for name in analysis.LIMITS) == pytest.approx(1)
    assert sum(found[name] for name in analysis.CAUSES) == pytest.approx(found["cwnd_limited"])


def fetched(*fetches: dict[str, Any]) -> pl.DataFrame:
    """Rows of both ends of fetches that take 100 ms each, without a pause: 20 ms of round trip at the end."""
    rows = []
    for i, told in enumerate(fetches):
        both = {"flow": "f", "fetch": i + 1, "cookie": 1000 + i}
        server = {
            **dict.fromkeys(("busy_time_us", "rwnd_limited_us", "sndbuf_limited_us"), 0),
            **dict.fromkeys(("ca_state", "total_retrans", "delivered_ce"), 0),
            **{"snd_cwnd": 20, "snd_ssthresh": INFINITE, "srtt_us": 20_000},
            **told,
        }
        sent = both | server | {"side": "sender", "host": "s", "t_ns": (100 * i + 15) * MS}
        got = {"side": "receiver", "host": "r", "t_ns": 100 * i * MS, "completion_ns": 100 * MS}
        rows += [sent, both | {"cookie": 7} | got | {"cut_ns": None}]
    return pl.DataFrame(rows, infer_schema_length=None)


def shares_of_fetches(*fetches: dict[str, Any], drops: pl.DataFrame | None = None) -> dict[str, float]:
    limited = analysis.fetch_limits(analysis.fetch_ends(fetched(*fetches)), None, drops)
    found = analysis.limit_shares(limited, (0, 100 * len(fetches) * MS))
    assert found is not None
    return {name: round(share, 6) for name, share in found.items() if share}


def test_fetches_are_limited_by_the_window_until_all_is_sent() -> None:
    assert shares_of_fetches(busy(80), busy(80)) == {
        "app_limited": 0.4,  # 20 ms until the request, and the last 20 ms
        "cwnd_limited": 0.6,
        "cwnd_slow_start": 0.6,
    }
    assert shares_of_fetches(busy(20)) == {"app_limited": 1.0}  # all of it fits into the first window


def test_a_connection_that_persists_goes_on_counting() -> None:
    kept = {"cookie": 1000}
    found = shares_of_fetches(
        busy(80, rwnd_limited_us=60_000) | kept, busy(160, rwnd_limited_us=80_000) | kept
    )
    assert found == {"app_limited": 0.4, "rwnd_limited": 0.4, "cwnd_limited": 0.2, "cwnd_slow_start": 0.2}


def test_a_loss_limits_the_connection_that_had_it() -> None:
    lost = {"total_retrans": 2, "snd_ssthresh": 10}
    found = shares_of_fetches(busy(80) | lost, busy(80))
    assert (found["cwnd_loss"], found["cwnd_slow_start"]) == (0.3, 0.3)
    found = shares_of_fetches(busy(80) | lost, drops=policer_drops((0, 0), (5, 0)))
    assert found["cwnd_policer"] == 0.6


def test_nothing_is_said_of_fetches_without_the_counters() -> None:
    ends = analysis.fetch_ends(fetched(busy(80)).drop("busy_time_us"))
    assert analysis.fetch_limits(ends).is_empty()
    went_back = fetched(busy(80, cookie=1), busy(40, cookie=1))
    limited = analysis.fetch_limits(analysis.fetch_ends(went_back))
    assert limited["limit_unknown"].to_list() == [0, 100 * MS]


def policer_drops(*counts: tuple[int, int]) -> pl.DataFrame:
    """What a policer and the other stages have dropped at each sample."""
    rows = [
        {"flow": "f", "t_ns": i * 100 * MS, "policed": policed, "others": others}
        for i, (policed, others) in enumerate(counts)
    ]
    return pl.DataFrame(rows)


@pytest.mark.parametrize(
    ("drops", "cause"),
    [
        ([(0, 0), (3, 0), (3, 0), (3, 0)], "cwnd_policer"),  # and nothing since
        ([(0, 0), (3, 4), (3, 4), (3, 4)], "cwnd_loss"),
        ([(0, 0), (0, 0), (0, 0), (0, 0)], "cwnd_loss"),  # lost elsewhere
    ],
)
def test_a_loss_is_the_policers_if_it_dropped_most(drops: list[tuple[int, int]], cause: str) -> None:
    lost = {"total_retrans": 3, "snd_ssthresh": 5, "srtt_us": 10_000}
    rows = sampled(busy(0, srtt_us=10_000), busy(100, **lost), busy(200), busy(300, ca_state=RECOVERY))
    limited = analysis.limits(rows, None, policer_drops(*drops))
    found = analysis.limit_shares(limited, (100 * MS, 300 * MS))
    assert found is not None
    assert found[cause] == pytest.approx(1)


def numbers(**more: Any) -> Numbers:
    """Those of a flow whose congestion window is its limit, on a path that is not full."""
    found: dict[str, Any] = dict.fromkeys(Numbers._fields)
    found |= {"rtt_ns": 20e6, "cwnd_bytes": 30_000, "goodput_bps": 5e6, "retransmits": 0.02, "path_bps": 15e6}
    return Numbers(**found | {"path_full": False, "loss": 0} | more)


def test_a_policer_is_named_with_its_burst() -> None:
    flow = planned().phase("measurement").flows[0]
    asked = Policer(rate_bps=15_000_000, burst_bytes=10_000)
    said = sentence("cwnd_policer", flow, numbers(policer=asked))
    assert "as drops of the policer of 15 Mbit/s with a burst of 10\u202f000 bytes left it" in said
    assert "a burst of 187\u202f500 bytes, a tenth of a second of its rate" in said


def test_a_loss_that_was_asked_for_is_named() -> None:
    flow = planned().phase("measurement").flows[0]
    assert "less than the 3 % of packets that it loses" in sentence("cwnd_loss", flow, numbers(loss=0.03))
    assert "find what else loses packets" in sentence("cwnd_loss", flow, numbers())


def test_a_run_tells_it_in_tables_checks_and_report(run_dir: Path) -> None:
    bounds = [
        {"metric": metric, "flows": ["flow1"], "window_ns": (10 * SECOND, 20 * SECOND), "min": 0, "max": None}
        for metric in analysis.LIMITS
        if metric != "limit_unknown"
    ]
    edit(run_dir / "plan.json", lambda plan: plan["points"][0].update(expect=bounds))
    checks = {check.name: check.measured for check in collect(run_dir, None).checks if check.kind == "expect"}
    assert sum(float(share) for share in checks.values()) == pytest.approx(1)
    flows = pl.read_parquet(run_dir / "flows.parquet").filter(phase="measurement")
    assert flows.select(pl.sum_horizontal(analysis.LIMITS)).to_series().to_list() == pytest.approx([1, 1])
    page = Report(run_dir).limits().data
    assert "<td>flow1</td>" in page
    assert "Mbit/s" in page


def test_an_older_run_says_that_it_does_not_know(run_dir: Path) -> None:
    collect(run_dir, None)
    for name in ("tcp_info", "flows"):
        file = run_dir / f"{name}.parquet"
        pl.read_parquet(file).drop(
            "busy_time_us", *analysis.LIMITS, *analysis.CAUSES, strict=False
        ).write_parquet(file)
    (run_dir / "cpu_core.parquet").unlink()
    page = Report(run_dir).limits().data
    assert page.count("Not known: its kernel did not count what limited it") == 2
