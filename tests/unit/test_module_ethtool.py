"""ethtool on output of ethtool 6.1."""

import pytest
from conftest_modules import FIXTURES, ethtool
from hypothesis import given
from hypothesis import strategies as st

VETH = (FIXTURES / "ethtool" / "veth-6.1.txt").read_text()


def test_a_real_dump_is_parsed() -> None:
    features = ethtool.parse("features", VETH)
    assert len(features) == VETH.count(": o")
    assert features["tcp-segmentation-offload"] == (True, False, None)
    assert features["tx-tcp6-segmentation"] == (True, False, None)
    assert features["generic-receive-offload"] == (False, False, None)
    assert features["large-receive-offload"] == (False, True, None)
    assert features["tx-lockless"] == (True, True, None)


def test_short_names_are_in_the_dump() -> None:
    assert set(ethtool.SHORT_NAMES.values()) <= set(ethtool.parse("features", VETH))


def test_all_that_differs_changes_in_one_command() -> None:
    asked = {"tso": False, "generic-segmentation-offload": False, "gro": False, "tx-udp-segmentation": False}
    found = ethtool.find("features", asked, ethtool.parse("features", VETH))
    words = "ethtool -K vec1 tso off gso off tx-udp-segmentation off"
    assert ethtool.plan("vec1", "features", asked, found) == [words.split()]


def test_fixed_features_that_differ_are_refused_by_name() -> None:
    asked = {"lro": True, "rxhash": False, "tso": False}
    found = ethtool.find("features", asked, ethtool.parse("features", VETH))
    with pytest.raises(ValueError, match=r"^cannot change features: lro is fixed at off$"):
        ethtool.plan("vec1", "features", asked, found)


def test_unknown_features_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no features warp"):
        ethtool.find("features", {"tso": True, "warp": True}, ethtool.parse("features", VETH))


@pytest.mark.parametrize("note", ["", " [fixed]", " [requested on]", " [not requested]"])
def test_notes_are_understood(note: str) -> None:
    assert ethtool.parse("features", f"Features for a:\n\ttx-nocache-copy: off{note}\n") == {
        "tx-nocache-copy": (False, note == " [fixed]", None)
    }


names = st.from_regex(r"[a-z][a-z0-9_-]{0,20}", fullmatch=True).filter(lambda n: n not in ethtool.SHORT_NAMES)
tables = st.dictionaries(names, st.builds(ethtool.Parameter, st.booleans(), st.booleans(), st.none()))


def render(features: dict[str, ethtool.Parameter]) -> str:
    lines = [
        f"{name}: {'on' if on else 'off'}{' [fixed]' * fixed}" for name, (on, fixed, _) in features.items()
    ]
    return "\n\t".join(["Features for vec1:", *lines]) + "\n"


@given(tables)
def test_what_is_rendered_is_parsed_back(features: dict[str, ethtool.Parameter]) -> None:
    assert ethtool.parse("features", render(features)) == features


@given(tables, st.data())
def test_the_plan_sets_what_differs_and_nothing_else(
    features: dict[str, ethtool.Parameter], data: st.DataObject
) -> None:
    free = {name: feature for name, feature in features.items() if not feature.fixed}
    asked = data.draw(st.fixed_dictionaries({}, optional={name: st.booleans() for name in free}))
    commands = ethtool.plan("vec1", "features", asked, ethtool.find("features", asked, features))
    settings = commands[0][3:] if commands else []
    told = {name: value == "on" for name, value in zip(settings[::2], settings[1::2], strict=True)}
    assert told == {name: on for name, on in asked.items() if features[name].value != on}


def fixture(name: str) -> str:
    return (FIXTURES / "ethtool" / f"{name}-6.1.txt").read_text()


def test_rings_and_channels_have_limits() -> None:
    rings = ethtool.parse("rings", fixture("virtio_net-rings"))
    assert rings["rx"] == rings["tx"] == (256, False, 256)
    assert "rx-mini" not in rings  # n/a
    assert ethtool.parse("channels", fixture("virtio_net-channels")) == {"combined": (1, False, 1)}


def test_coalescing_is_read_by_the_names_that_set_it() -> None:
    found = ethtool.parse("coalescing", fixture("virtio_net-coalescing"))
    assert {name: each.value for name, each in found.items()} == {
        "adaptive-rx": False,
        "rx-usecs": 0,
        "rx-frames": 1,
        "tx-usecs": 0,
        "tx-frames": 1,
    }
    assert ethtool.parse("coalescing", fixture("uml-vector-coalescing")) == {"tx-usecs": (20000, False, None)}
    assert ethtool.parse("coalescing", "rx-frame-low: 3\n") == {"rx-frames-low": (3, False, None)}


def test_pause_is_read_by_the_names_that_set_it() -> None:
    text = "Pause parameters for a:\nAutonegotiate:\ton\nRX:\t\toff\nTX:\t\ton\nRX negotiated: on\n\n"
    found = ethtool.parse("pause", text)
    assert {name: each.value for name, each in found.items()} == {"autoneg": True, "rx": False, "tx": True}


def test_one_command_changes_a_group() -> None:
    found = ethtool.parse("coalescing", fixture("virtio_net-coalescing"))
    asked = {"adaptive-rx": True, "rx-usecs": 8, "rx-frames": 1}
    commands = ethtool.plan("vec1", "coalescing", asked, ethtool.find("coalescing", asked, found))
    assert commands == [["ethtool", "-C", "vec1", "adaptive-rx", "on", "rx-usecs", "8"]]


@pytest.mark.parametrize(
    ("group", "text", "asked", "reason"),
    [
        ("rings", "virtio_net-rings", {"rx": 512}, "cannot change rings: rx is at most 256, asked 512"),
        ("rings", "virtio_net-rings", {"rx-mini": 1}, "no rings rx-mini; it has rx, tx"),
        ("pause", None, {"rx": False}, "no pause rx$"),  # the device has none
    ],
)
def test_what_the_hardware_does_not_have_is_refused(
    group: str, text: str | None, asked: dict[str, ethtool.Value], reason: str
) -> None:
    found = ethtool.parse(group, fixture(text) if text else "")
    with pytest.raises(ValueError, match=reason):
        ethtool.plan("vec1", group, asked, ethtool.find(group, asked, found))


@pytest.mark.parametrize(
    ("written", "value"), [("on", True), (True, True), ("no", False), (0, 0), ("4096", 4096), (False, False)]
)
def test_values_have_one_form(written: object, value: ethtool.Value) -> None:
    found = ethtool.canonical("rx", written)
    assert (found, type(found)) == (value, type(value))


def test_a_value_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match="rx: 'many' is neither"):
        ethtool.canonical("rx", "many")


def test_what_is_recorded_can_be_set_back() -> None:
    was = ethtool.changeable("features", VETH)
    assert "generic-receive-offload" in was
    assert not {"tx-lockless", "tcp-segmentation-offload"} & set(was)  # fixed; a summary
