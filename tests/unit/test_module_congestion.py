"""tcp_congestion: what a host has, in which build, what it lacks, and how it gets there."""

import pytest
from conftest_modules import FIXTURES, congestion
from hypothesis import given
from hypothesis import strategies as st

Asked, Controls, Loaded, ModuleFile = (
    congestion.Asked,
    congestion.Controls,
    congestion.Loaded,
    congestion.ModuleFile,
)
CUBIC = Loaded(None, None, {"hystart": "1", "beta": "717", "bic_scale": "41"}, frozenset({"bic_scale"}))
DCTCP = Loaded("4E9F", "aa" * 20, {}, frozenset())
HOST = Controls(
    available=["reno", "cubic", "dctcp"],
    allowed=["reno", "cubic"],
    loadable=["bbr", "dctcp", "vegas"],
    loaded={"cubic": CUBIC, "dctcp": DCTCP},
    files={
        "dctcp": ModuleFile("4E9F", "aa" * 20, frozenset({"shift_g"})),
        "bbr": ModuleFile(None, None, frozenset()),
    },
)


def asked(*controls: str, allowed: list[str] | None = None, **parameters: dict[str, str]) -> congestion.Asked:
    return Asked(list(controls), parameters, allowed)


def test_the_modules_that_depmod_chose_are_controls_but_for_diag() -> None:
    listed = (
        "kernel/net/ipv4/tcp_bbr.ko:\nupdates/tcp_mine.ko: kernel/lib/a.ko\n"
        "kernel/net/ipv4/tcp_vegas.ko.xz:\n"
        "kernel/net/ipv4/tcp_diag.ko: kernel/net/ipv4/inet_diag.ko\nkernel/net/sched/sch_fq.ko:\n"
    )
    assert congestion.loadable(listed) == {
        "bbr": "kernel/net/ipv4/tcp_bbr.ko",
        "mine": "updates/tcp_mine.ko",
        "vegas": "kernel/net/ipv4/tcp_vegas.ko.xz",
    }


@pytest.mark.parametrize(
    ("name", "found"),
    [
        # Of Debian's package user-mode-linux, whose modules have no srcversion.
        (
            "tcp_vegas-6.1.176-uml",
            ModuleFile(
                None, "2ddfe2363747c110eac76855dedc8b0e34ebec35", frozenset({"alpha", "beta", "gamma"})
            ),
        ),
        # tests/modules/tcp_constant, built for kernels/lab.yml.
        (
            "tcp_constant-6.12-lab",
            ModuleFile(
                "A6677A329762427B22809C8",
                "6df15ca5d53e6ae7fb2041a82947e5cacbcfec50",
                frozenset({"window", "scale"}),
            ),
        ),
    ],
)
def test_real_modules_say_what_they_are(name: str, found: congestion.ModuleFile) -> None:
    """The fixtures are the sections .modinfo and .note.gnu.build-id of their files."""
    assert congestion.describe((FIXTURES / "modules" / name).read_bytes()) == found


def test_modules_are_loaded_with_parameters_and_all_are_allowed() -> None:
    assert congestion.plan(asked("cubic", "bbr", "dctcp", bbr={"gain": "3"}), HOST) == [
        ["modprobe", "tcp_bbr", "gain=3"],
        ["sysctl", "-w", "net.ipv4.tcp_allowed_congestion_control=reno cubic bbr dctcp"],
    ]


def test_parameters_are_written_where_the_kernel_takes_them() -> None:
    wanted = asked("cubic", cubic={"hystart": "0", "beta": "717"})
    assert congestion.plan(wanted, HOST) == [["sh", "-c", "echo 0 >/sys/module/tcp_cubic/parameters/hystart"]]
    assert congestion.mismatches(wanted, HOST) == {"hystart of cubic": ("0", "1")}


def test_parameters_of_loading_need_loading() -> None:
    assert congestion.plan(asked("cubic", cubic={"bic_scale": "40"}), HOST) == [
        ["modprobe", "--remove", "tcp_cubic"],
        ["modprobe", "tcp_cubic", "bic_scale=40"],
        ["sysctl", "-w", "net.ipv4.tcp_allowed_congestion_control=reno cubic"],
    ]


@pytest.mark.parametrize(
    "file", [ModuleFile("5000", None, frozenset()), ModuleFile(None, "bb" * 20, frozenset())]
)
def test_another_build_than_the_file_is_loaded_anew(file: congestion.ModuleFile) -> None:
    host = HOST._replace(files={"dctcp": file}, allowed=["reno", "dctcp"])
    assert congestion.plan(asked("dctcp"), host) == [
        ["modprobe", "--remove", "tcp_dctcp"],
        ["modprobe", "tcp_dctcp"],
        ["sysctl", "-w", "net.ipv4.tcp_allowed_congestion_control=reno dctcp"],
    ]
    assert congestion.mismatches(asked("dctcp"), host) == {"build of dctcp": (file[:2], DCTCP[:2])}


def test_what_is_not_known_of_a_build_is_no_difference() -> None:
    host = HOST._replace(files={"dctcp": ModuleFile(None, None, frozenset())}, allowed=["dctcp"])
    assert congestion.plan(asked("dctcp"), host) == []


def test_the_allowed_controls_are_exactly_those_asked_for() -> None:
    assert congestion.plan(asked("cubic", allowed=["cubic"]), HOST) == [
        ["sysctl", "-w", "net.ipv4.tcp_allowed_congestion_control=cubic"]
    ]


def test_a_control_that_the_host_lacks_is_named() -> None:
    assert congestion.missing(["cubic", "bbr9", "diag"], HOST) == ["bbr9", "diag"]


def test_a_parameter_that_a_control_lacks_is_named() -> None:
    wanted = asked(cubic={"hystrat": "0"}, dctcp={"shift_g": "4"}, bbr={"gain": "3"}, vegas={"alpha": "2"})
    assert congestion.unknown_parameters(wanted, HOST) == {
        "cubic": (["hystrat"], ["beta", "bic_scale", "hystart"]),
        "bbr": (["gain"], []),
    }


@pytest.mark.parametrize(("value", "text"), [(True, "1"), ("Y", "1"), ("N", "0"), (3, "3"), ("1,2\n", "1,2")])
def test_values_have_one_form(value: object, text: str) -> None:
    assert congestion.canonical(value) == text


def test_available_but_not_allowed_is_a_mismatch() -> None:
    wrong = congestion.mismatches(asked("reno", "dctcp"), HOST)
    assert wrong == {"allowed": (["reno", "cubic", "dctcp"], ["reno", "cubic"])}


def test_the_report_identifies_only_what_is_available() -> None:
    assert congestion.report(asked("dctcp", "bbr"), HOST) == {
        "available": ["reno", "cubic", "dctcp"],
        "allowed": ["reno", "cubic"],
        "congestion_controls": {"dctcp": {"srcversion": "4E9F", "build_id": "aa" * 20, "parameters": {}}},
    }


NAMES = ["reno", "cubic", "bbr", "dctcp", "vegas"]
names = st.lists(st.sampled_from(NAMES), unique=True)
values = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["0", "1"]), min_size=2)
builds = st.sampled_from([None, "aa", "bb"])
loaded = st.fixed_dictionaries(
    {
        name: st.builds(Loaded, builds, builds, values, st.sampled_from([frozenset(), frozenset("a")]))
        for name in NAMES
    }
)
files = st.fixed_dictionaries(
    {name: st.builds(ModuleFile, builds, builds, st.just(frozenset("ab"))) for name in NAMES}
)


@st.composite
def states(draw: st.DrawFn) -> tuple[congestion.Asked, congestion.Controls]:
    parameters = draw(st.dictionaries(st.sampled_from(NAMES), values))
    allowed = draw(names)
    controls = list(dict.fromkeys([*draw(names), *parameters, *allowed]))
    available = draw(names)
    has = draw(loaded)
    present = {name: has[name] for name in controls if name in available}
    found = Controls(available, draw(names), controls, present, draw(files))
    return Asked(controls, parameters, allowed or None), found


@given(states())
def test_there_is_a_plan_exactly_when_there_is_a_mismatch(
    state: tuple[congestion.Asked, congestion.Controls],
) -> None:
    wanted, found = state
    assert bool(congestion.plan(wanted, found)) == bool(congestion.mismatches(wanted, found))
    after = congestion.predict(wanted, found)
    assert congestion.plan(wanted, after) == []
    assert congestion.missing(wanted.controls, found) == []
    assert congestion.unknown_parameters(wanted, found) == {}
