"""Tables of docs/evaluation/, from the results of an evaluation."""

from __future__ import annotations

from typing import Any

from tools import evaluated


def point(label: str, value: float | None, margin: float | None, state: str, why: str = "") -> dict[str, Any]:
    others = {"reno": 9e6, "bbr": 7e6, "cubic": None}
    return {
        "point": label,
        "value": value,
        "margin": margin,
        "state": state,
        "why": why,
        "others": others,
    }


def criterion(name: str, family: str, state: str, *points: dict[str, Any]) -> dict[str, Any]:
    bound = "at least 0.9 x reno or cubic"
    words = {"title": f"Is {name}", "metric": "goodput", "unit": "bps", "bound": bound}
    return {"name": name, "family": family, "state": state, "points": points} | words


FAST = criterion(
    "fast", "alone", "fail", point("10 ms", 2e6, 0.4, "fail"), point("100 ms", 1e6, 0.2, "fail"),
    point("1 ms", 9e6, 1.1, "pass"),
)  # fmt: skip
LATE = criterion("late", "alone", "no answer", point("10 ms", None, None, "no answer", "no samples"))
FAIR = criterion("fair", "among", "pass", point("2 flows", 9e6, 3, "pass"), point("4 flows", 9e6, 2, "pass"))


def test_the_point_that_decides_is_the_worst_of_those_with_its_state() -> None:
    assert [evaluated.decisive(of)["point"] for of in (FAST, LATE, FAIR)] == ["100 ms", "10 ms", "4 flows"]


def test_candidates_are_compared_by_criterion() -> None:
    lines = evaluated.comparison({"mine": [FAST, LATE, FAIR], "reno": [FAIR, FAIR, FAIR]}).splitlines()
    assert lines[0] == "| criterion | [mine](mine.md) | [reno](reno.md) |"
    assert lines[2:] == [
        "| **alone** |  |  |",
        "| `fast` | ✗ 1\N{NO-BREAK SPACE}Mbit/s | ✓ 9\N{NO-BREAK SPACE}Mbit/s |",
        "| `late` | ? | ✓ 9\N{NO-BREAK SPACE}Mbit/s |",
        "| **among** |  |  |",
        "| `fair` | ✓ 9\N{NO-BREAK SPACE}Mbit/s | ✓ 9\N{NO-BREAK SPACE}Mbit/s |",
        "| **passes of 3** | **1** | **3** |",
    ]


def test_a_candidate_s_table_names_the_references_of_its_bound() -> None:
    assert evaluated.own([FAST, LATE]).splitlines()[2:] == [
        "| ✗ | Is fast | 1 Mbit/s | goodput at least 0.9 x reno or cubic | reno 9 Mbit/s | 100 ms |",
        "| ? | Is late | no samples | goodput at least 0.9 x reno or cubic | reno 9 Mbit/s | 10 ms |",
    ]


def test_what_is_written_by_hand_stays() -> None:
    page = f"# mine\n\nKnown.\n\n{evaluated.EMPTY}\nFound.\n"
    once = evaluated.renewed(page, "| a |\n")
    assert once == "# mine\n\nKnown.\n\n<!-- table -->\n| a |\n<!-- end -->\n\nFound.\n"
    assert evaluated.renewed(once, "") == page


def test_figures_have_a_row_for_each_criterion() -> None:
    results = [FAST, LATE, FAIR]
    heat = evaluated.heat_map({"mine": results}).data[0]
    assert [*heat.y] == ["fast", "late", "fair"]
    assert [row[0] for row in heat.text] == ["✗", "", ""]
    assert heat.z[1][0] is None
    assert [*evaluated.margins("mine", results).data[0].x] == [0.2, 2]
