"""``python -m dumbbell.fidelity``: the entry point."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from dumbbell.fidelity.cells import Cell, cells
from dumbbell.fidelity.judging import Json, Row, highest_held_bps, judge

ALWAYS_JUDGED_BPS = 100 * 10**6  # what is faster and not held is beyond the testbed, and said so
TABLE_MARK = "<!-- written by make fidelity -->"
WRITTEN = (Path("docs/fidelity.md"), Path("bench/fidelity.json"))
VIRTUAL_WRITTEN = (Path("docs/fidelity-virtual.md"), Path("bench/fidelity_virtual.json"))
AGAIN = 4  # times the packets of a first measurement


def markdown(rows: Sequence[Row]) -> str:
    """The table asked / measured."""
    lines = [
        "| cell | direction | rate | RTT | queue | asked | measured | packets | count, 99 % | unattributed "
        "| |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        rate = f"{row.measured_bps / 1e6:.2f} Mbit/s" if row.measured_bps else "-"
        queue = (
            f"{row.measured_queue_packets:.1f} of {row.queue_packets}" if row.measured_queue_packets else "-"
        )
        what = "" if row.effect == "loss" else f" {row.effect}"
        verdict = "; ".join(row.wrong) or "ok"
        lines.append(
            f"| {row.cell} | {row.direction} | {rate} | {row.measured_rtt_ms:.2f} ms | {queue} "
            f"| {100 * row.share:.3g} %{what} | {100 * row.measured_share:.3g} % | {row.packets} "
            f"| {row.count}, {row.interval[0]}-{row.interval[1]} | {row.unattributed} "
            f"| {verdict if row.judged else f'looked at: {verdict}'} |"
        )
    return "\n".join(lines)


def judge_all(folder: Path) -> list[Row]:
    """Rows of all cells in the order of the matrix; a first measurement that was repeated is not judged."""
    rows: list[Row] = []
    for attempts in _measured(folder):
        for cell, parts in attempts:
            rows += judge(replace(cell, judged=cell.judged and cell == attempts[-1][0]), parts)
    return rows


def _measured(folder: Path) -> list[list[tuple[Cell, dict[str, Json]]]]:
    """Of each cell its measurements, the shortest first: how it was set, and what the playbook wrote."""
    found: dict[str, dict[float, dict[str, Json]]] = {}
    for path in folder.rglob("*.*.json"):
        part = json.loads(path.read_text())
        cell = part["cell"]
        parts = found.setdefault(cell["name"], {}).setdefault(cell["duration_s"], {})
        parts[path.suffixes[-2].removeprefix(".")] = part
    order = [cell.name for cell in (*cells(), *cells(virtual=True))]
    return [
        [(Cell(**parts["router"]["cell"]), parts) for _, parts in sorted(found[name].items())]
        for name in sorted(found, key=order.index)
    ]


def again(folder: Path) -> list[Cell]:
    """Cells out of tolerance, four times as long.

    One count in a hundred is outside its interval by chance, and the machine may have had other work. Losses
    that nothing accounts for have no such excuse.
    """
    unlikely = {row.cell for row in judge_all(folder) if row.judged and row.wrong and not row.unattributed}
    return [
        replace(cell, duration_s=AGAIN * cell.duration_s, packets=AGAIN * cell.packets)
        for (cell, _), *_ in _measured(folder)
        if cell.name in unlikely
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of ``python -m dumbbell.fidelity``."""
    parser = argparse.ArgumentParser(prog="python -m dumbbell.fidelity")
    commands = parser.add_subparsers(dest="command", required=True)
    listed = commands.add_parser("cells", help="what is to be measured, as JSON")
    listed.add_argument("--only", help="regular expression of their names", default="")
    listed.add_argument("--virtual", action="store_true", help="in virtual time")
    commands.add_parser("again", help="what deserves a second look, as JSON").add_argument(
        "folder", type=Path
    )
    judged = commands.add_parser("judge", help="print and write the table; fail where it is out of tolerance")
    judged.add_argument("folder", type=Path)
    judged.add_argument("--write", action="store_true", help="into docs/ and bench/")
    options = parser.parse_args(arguments)
    if options.command == "judge":
        return _report(judge_all(options.folder), write=options.write)
    if options.command == "again":
        found = again(options.folder)
    else:
        found = [cell for cell in cells(virtual=options.virtual) if re.search(options.only, cell.name)]
    print(json.dumps([asdict(cell) for cell in found]))
    return 0


def _report(rows: list[Row], *, write: bool) -> int:
    held = highest_held_bps(rows)
    judged = [row for row in rows if row.judged]
    beyond = [row for row in judged if row.rate_bps > max(held, ALWAYS_JUDGED_BPS)]
    wrong = [row for row in judged if row.wrong and row not in beyond]
    summary = [
        f"Highest rate held: {held / 1e6:g} Mbit/s.",
        f"Up to it, {len(judged) - len(beyond) - len(wrong)} of {len(judged) - len(beyond)} measurements are "
        "within tolerance.",
    ]
    if beyond:
        summary.append(f"{len(beyond)} measurements ask for more than that and prove nothing.")
    text = f"{' '.join(summary)}\n\n{markdown(rows)}\n"
    print(text)
    if write:
        virtual = any(row.virtual for row in rows)
        document, target = VIRTUAL_WRITTEN if virtual else WRITTEN
        introduction, mark, _ = document.read_text().partition(TABLE_MARK)
        document.write_text(f"{introduction}{mark}\n\n{text}")
        body = {"highest_held_bps": held, "rows": [asdict(row) for row in rows]}
        target.write_text(json.dumps(body, indent=1) + "\n")
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
