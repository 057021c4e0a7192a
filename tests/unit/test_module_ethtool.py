"""ethtool_features on output of ethtool 6.1."""

import pytest
from conftest_modules import FIXTURES, ethtool
from hypothesis import given
from hypothesis import strategies as st

VETH = (FIXTURES / "ethtool" / "veth-6.1.txt").read_text()


def test_a_real_dump_is_parsed() -> None:
    features = ethtool.parse(VETH)
    assert len(features) == VETH.count(": o")
    assert features["tcp-segmentation-offload"] == (True, False)
    assert features["tx-tcp6-segmentation"] == (True, False)
    assert features["generic-receive-offload"] == (False, False)
    assert features["large-receive-offload"] == (False, True)
    assert features["tx-lockless"] == (True, True)


def test_short_names_are_in_the_dump() -> None:
    assert set(ethtool.SHORT_NAMES.values()) <= set(ethtool.parse(VETH))


def test_all_that_differs_changes_in_one_command() -> None:
    asked = {"tso": False, "generic-segmentation-offload": False, "gro": False, "tx-udp-segmentation": False}
    found = ethtool.find(asked, ethtool.parse(VETH))
    words = "ethtool -K vec1 tso off gso off tx-udp-segmentation off"
    assert ethtool.plan("vec1", asked, found) == [words.split()]


def test_fixed_features_that_differ_are_refused_by_name() -> None:
    asked = {"lro": True, "rxhash": False, "tso": False}
    found = ethtool.find(asked, ethtool.parse(VETH))
    with pytest.raises(ValueError, match=r"^vec1 cannot change: lro is fixed off$"):
        ethtool.plan("vec1", asked, found)


def test_unknown_features_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no such feature: warp"):
        ethtool.find({"tso": True, "warp": True}, ethtool.parse(VETH))


@pytest.mark.parametrize("note", ["", " [fixed]", " [requested on]", " [not requested]"])
def test_notes_are_understood(note: str) -> None:
    assert ethtool.parse(f"Features for a:\n\ttx-nocache-copy: off{note}\n") == {
        "tx-nocache-copy": (False, note == " [fixed]")
    }


names = st.from_regex(r"[a-z][a-z0-9_-]{0,20}", fullmatch=True).filter(lambda n: n not in ethtool.SHORT_NAMES)
tables = st.dictionaries(names, st.builds(ethtool.Feature, st.booleans(), st.booleans()))


def render(features: dict[str, ethtool.Feature]) -> str:
    lines = [f"{name}: {'on' if on else 'off'}{' [fixed]' * fixed}" for name, (on, fixed) in features.items()]
    return "\n\t".join(["Features for vec1:", *lines]) + "\n"


@given(tables)
def test_what_is_rendered_is_parsed_back(features: dict[str, ethtool.Feature]) -> None:
    assert ethtool.parse(render(features)) == features


@given(tables, st.data())
def test_the_plan_sets_what_differs_and_nothing_else(
    features: dict[str, ethtool.Feature], data: st.DataObject
) -> None:
    free = {name: feature for name, feature in features.items() if not feature.fixed}
    asked = data.draw(st.fixed_dictionaries({}, optional={name: st.booleans() for name in free}))
    commands = ethtool.plan("vec1", asked, ethtool.find(asked, features))
    settings = commands[0][3:] if commands else []
    told = {name: value == "on" for name, value in zip(settings[::2], settings[1::2], strict=True)}
    assert told == {name: on for name, on in asked.items() if features[name].on != on}
