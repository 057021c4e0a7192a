"""kernel_modules: what a host has, in which build, what it lacks, and how it gets there."""

import pytest
from conftest_modules import FIXTURES, modules
from hypothesis import given
from hypothesis import strategies as st

Asked, Loaded, ModuleFile, Modules = (
    modules.Asked,
    modules.Loaded,
    modules.ModuleFile,
    modules.Modules,
)
CUBIC = Loaded(None, None, {"hystart": "1", "beta": "717", "bic_scale": "41"}, frozenset({"bic_scale"}))
DCTCP = Loaded("4E9F", "aa" * 20, {}, frozenset())
HOST = Modules(
    available=["reno", "cubic", "dctcp"],
    allowed=["reno", "cubic"],
    loadable=["ifb", "sch_fq", "sch_fq_codel", "tcp_bbr", "tcp_dctcp", "tcp_diag", "tcp_vegas"],
    loaded={"tcp_cubic": CUBIC, "tcp_dctcp": DCTCP, "tcp_reno": Loaded(None, None, {}, frozenset())},
    files={
        "tcp_dctcp": ModuleFile("4E9F", "aa" * 20, frozenset({"shift_g"})),
        "tcp_bbr": ModuleFile(None, None, frozenset()),
        "ifb": ModuleFile(None, None, frozenset({"numifbs"})),
    },
)


def asked(*controls: str, allowed: list[str] | None = None, **parameters: dict[str, str]) -> modules.Asked:
    return Asked(parameters, list(controls), allowed)


def test_the_files_that_depmod_chose_are_known_by_the_modules_names() -> None:
    listed = (
        "kernel/net/ipv4/tcp_bbr.ko:\nupdates/tcp_mine.ko: kernel/lib/a.ko\n"
        "kernel/net/ipv4/tcp_vegas.ko.xz:\n"
        "kernel/net/netfilter/nf-tables.ko: kernel/net/netfilter/nfnetlink.ko\n"
    )
    assert modules.module_files(listed) == {
        "tcp_bbr": "kernel/net/ipv4/tcp_bbr.ko",
        "tcp_mine": "updates/tcp_mine.ko",
        "tcp_vegas": "kernel/net/ipv4/tcp_vegas.ko.xz",
        "nf_tables": "kernel/net/netfilter/nf-tables.ko",
    }
    assert modules.module_files("kernel/net/ipv4/tcp_cubic.ko\n") == {
        "tcp_cubic": "kernel/net/ipv4/tcp_cubic.ko"
    }


def test_a_module_may_have_several_congestion_controls() -> None:
    listed = "# Aliases\nalias tcp_reno_prr tcp_recovery\nalias tcp_ulp_tls tls\nalias pci:v0*d1 e1000\n"
    aliases = modules.control_aliases(listed)
    assert aliases == {"tcp_reno_prr": "tcp_recovery"}
    assert Asked({}, ["reno_prr", "bbr"], None, aliases).names == ["tcp_recovery", "tcp_bbr"]


@pytest.mark.parametrize(
    ("module", "control"), [("tcp_bbr", "bbr"), ("tcp_diag", None), ("sch_fq", None), ("ifb", None)]
)
def test_a_congestion_control_is_known_by_its_modules_name(module: str, control: str | None) -> None:
    assert modules.control_of(module) == control


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
def test_real_modules_say_what_they_are(name: str, found: modules.ModuleFile) -> None:
    """The fixtures are the sections .modinfo and .note.gnu.build-id of their files."""
    assert modules.describe((FIXTURES / "modules" / name).read_bytes()) == found


def test_modules_are_loaded_with_parameters_and_all_controls_are_allowed() -> None:
    wanted = asked("cubic", "bbr", "dctcp", ifb={"numifbs": "2"}, tcp_bbr={"gain": "3"})
    assert modules.plan(wanted, HOST) == [
        ["modprobe", "ifb", "numifbs=2"],
        ["modprobe", "tcp_bbr", "gain=3"],
        ["sysctl", "-w", "net.ipv4.tcp_allowed_congestion_control=reno cubic bbr dctcp"],
    ]


def test_a_module_that_is_not_asked_for_as_a_control_is_allowed_to_nobody() -> None:
    assert modules.plan(asked(tcp_vegas={}), HOST) == [["modprobe", "tcp_vegas"]]


def test_parameters_are_written_where_the_kernel_takes_them() -> None:
    wanted = asked("cubic", tcp_cubic={"hystart": "0", "beta": "717"})
    assert modules.plan(wanted, HOST) == [["sh", "-c", "echo 0 >/sys/module/tcp_cubic/parameters/hystart"]]
    assert modules.mismatches(wanted, HOST) == {"hystart of tcp_cubic": ("0", "1")}


def test_parameters_of_loading_need_loading() -> None:
    assert modules.plan(asked("cubic", tcp_cubic={"bic_scale": "40"}), HOST) == [
        ["modprobe", "--remove", "tcp_cubic"],
        ["modprobe", "tcp_cubic", "bic_scale=40"],
        ["sysctl", "-w", "net.ipv4.tcp_allowed_congestion_control=reno cubic"],
    ]


@pytest.mark.parametrize(
    "file", [ModuleFile("5000", None, frozenset()), ModuleFile(None, "bb" * 20, frozenset())]
)
def test_another_build_than_the_file_is_loaded_anew(file: modules.ModuleFile) -> None:
    host = HOST._replace(files={"tcp_dctcp": file}, allowed=["reno", "dctcp"])
    assert modules.plan(asked("dctcp"), host) == [
        ["modprobe", "--remove", "tcp_dctcp"],
        ["modprobe", "tcp_dctcp"],
        ["sysctl", "-w", "net.ipv4.tcp_allowed_congestion_control=reno dctcp"],
    ]
    assert modules.mismatches(asked("dctcp"), host) == {"build of tcp_dctcp": (file[:2], DCTCP[:2])}


def test_what_is_not_known_of_a_build_is_no_difference() -> None:
    host = HOST._replace(files={"tcp_dctcp": ModuleFile(None, None, frozenset())}, allowed=["dctcp"])
    assert modules.plan(asked("dctcp"), host) == []


def test_the_allowed_controls_are_exactly_those_asked_for() -> None:
    assert modules.plan(asked("cubic", allowed=["cubic"]), HOST) == [
        ["sysctl", "-w", "net.ipv4.tcp_allowed_congestion_control=cubic"]
    ]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (
            asked("cubic", "bbr9", "diag"),
            "asked for congestion control bbr9, diag, which this host lacks; "
            "it has bbr, cubic, dctcp, reno, vegas",
        ),
        (
            asked(sch_fq_code={}),
            "asked for module sch_fq_code, which this host lacks; did you mean sch_fq_codel?",
        ),
        (asked(zfs={}), "asked for module zfs, which this host lacks"),
        (
            asked(tcp_cubic={"hystrat": "0"}),
            "asked for parameter hystrat of module tcp_cubic, which lacks it; "
            "it has beta, bic_scale, hystart",
        ),
        (
            asked(ifb={"n": "2", "numifbs": "2"}),
            "asked for parameter n of module ifb, which lacks it; it has numifbs",
        ),
        (
            asked(tcp_bbr={"gain": "3"}),
            "asked for parameter gain of module tcp_bbr, which lacks it; it has none",
        ),
    ],
)
def test_what_the_host_lacks_is_named(wanted: modules.Asked, said: str) -> None:
    assert list(modules.refusals(wanted, HOST)) == [said]


def test_what_is_not_known_of_a_module_before_it_is_loaded_is_not_refused() -> None:
    wanted = asked("vegas", sch_fq={}, tcp_dctcp={"shift_g": "4"}, tcp_vegas={"alpha": "2"})
    assert list(modules.refusals(wanted, HOST)) == []


@pytest.mark.parametrize(("value", "text"), [(True, "1"), ("Y", "1"), ("N", "0"), (3, "3"), ("1,2\n", "1,2")])
def test_values_have_one_form(value: object, text: str) -> None:
    assert modules.canonical(value) == text


def test_available_but_not_allowed_is_a_mismatch() -> None:
    wrong = modules.mismatches(asked("reno", "dctcp"), HOST)
    assert wrong == {"allowed": (["reno", "cubic", "dctcp"], ["reno", "cubic"])}


def test_the_report_identifies_only_what_is_loaded() -> None:
    assert modules.report(asked("dctcp", "bbr"), HOST) == {
        "available": ["reno", "cubic", "dctcp"],
        "allowed": ["reno", "cubic"],
        "loaded": {"tcp_dctcp": {"srcversion": "4E9F", "build_id": "aa" * 20, "parameters": {}}},
    }


CONTROLS = ["reno", "cubic", "bbr", "dctcp", "vegas"]
NAMES = ["ifb", "sch_fq", *map(modules.module_of, CONTROLS)]
controls = st.lists(st.sampled_from(CONTROLS), unique=True)
values = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["0", "1"]), min_size=2)
builds = st.sampled_from([None, "aa", "bb"])
loaded = st.builds(Loaded, builds, builds, values, st.sampled_from([frozenset(), frozenset("a")]))
files = st.fixed_dictionaries(
    {name: st.builds(ModuleFile, builds, builds, st.just(frozenset("ab"))) for name in NAMES}
)


@st.composite
def states(draw: st.DrawFn) -> tuple[modules.Asked, modules.Modules]:
    allowed = draw(controls)
    wanted = Asked(
        draw(st.dictionaries(st.sampled_from(NAMES), st.just({}) | values)),
        list(dict.fromkeys([*draw(controls), *allowed])),
        allowed or None,
    )
    present = {name: draw(loaded) for name in wanted.names if draw(st.booleans())}
    available = ["reno", *filter(None, map(modules.control_of, present))]
    return wanted, Modules(available, draw(controls), NAMES, present, draw(files))


@given(states())
def test_there_is_a_plan_exactly_when_there_is_a_mismatch(
    state: tuple[modules.Asked, modules.Modules],
) -> None:
    wanted, found = state
    assert bool(modules.plan(wanted, found)) == bool(modules.mismatches(wanted, found))
    after = modules.predict(wanted, found)
    assert modules.plan(wanted, after) == []
    assert modules.mismatches(wanted, after) == {}
    assert list(modules.refusals(wanted, found)) == []
