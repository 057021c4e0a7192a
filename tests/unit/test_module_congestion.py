"""tcp_congestion: what a host has, what it lacks, and how it gets there."""

from conftest_modules import congestion
from hypothesis import given
from hypothesis import strategies as st

HOST = congestion.Controls(
    available=["reno", "cubic", "dctcp"],
    allowed=["reno", "cubic"],
    loadable=["bbr", "dctcp", "vegas"],
    srcversions={"cubic": None, "dctcp": "4E9F7AAA65BA6C93BE9E3A4"},
)


def test_modules_of_any_compression_are_controls_but_for_diag() -> None:
    files = [
        "tcp_bbr.ko",
        "tcp_vegas.ko.xz",
        "tcp_dctcp.ko.zst",
        "tcp_diag.ko",
        "tcp_bbr.ko.xz",
        "tcp_cubic.c",
    ]
    assert congestion.loadable(files) == ["bbr", "dctcp", "vegas"]


def test_modules_are_loaded_and_all_are_allowed() -> None:
    assert congestion.plan(["cubic", "bbr", "dctcp"], HOST) == [
        ["modprobe", "tcp_bbr"],
        ["sysctl", "-w", "net.ipv4.tcp_allowed_congestion_control=reno cubic bbr dctcp"],
    ]


def test_a_control_that_the_host_lacks_is_named() -> None:
    assert congestion.missing(["cubic", "bbr9", "diag"], HOST) == ["bbr9", "diag"]


def test_available_but_not_allowed_is_a_mismatch() -> None:
    assert congestion.mismatches(["reno", "dctcp"], HOST) == {"dctcp": ("allowed", ["reno", "cubic"])}


def test_the_report_identifies_only_what_is_available() -> None:
    controls = HOST._replace(srcversions={"dctcp": "4E9F", "bbr": None})
    assert congestion.report(["dctcp", "bbr"], controls) == {
        "available": ["reno", "cubic", "dctcp"],
        "allowed": ["reno", "cubic"],
        "congestion_controls": {"dctcp": {"srcversion": "4E9F"}},
    }


names = st.lists(st.sampled_from(["reno", "cubic", "bbr", "dctcp", "vegas"]), unique=True)


@given(names, names, names)
def test_there_is_a_plan_exactly_when_there_is_a_mismatch(
    asked: list[str], available: list[str], allowed: list[str]
) -> None:
    found = congestion.Controls(available, allowed, asked, dict.fromkeys(asked))
    assert bool(congestion.plan(asked, found)) == bool(congestion.mismatches(asked, found))
    after = congestion.predict(asked, found)
    assert congestion.plan(asked, after) == []
    assert congestion.missing(asked, found) == []
