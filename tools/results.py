"""Tables of docs/results.md: results of published experiments beside results of the same experiments here.

``python -m tools.results lab=results/experiments "virtual time"=results/experiments_virtual`` renews each
table, between its two marks; the text around it is written by hand. Tables contain valid points only.
docs/results.json keeps the results of each kind of testbed, so that one can be measured without the others.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.results_rows import (
    LONG_TRANSFER,
    REJECTS,
    TWO_FLOWS,
    TWO_RAPID,
    UDP_ALONE,
    Cells,
    Source,
    long_transfer,
    original,
    queue_and_cwnd,
    reductions,
    rejects,
    tcp_beside_udp,
    two_flows,
    two_rapid,
    udp_alone,
    udp_loss,
    web_fetches,
)

DOCUMENT, FOUND = Path("docs/results.md"), Path("docs/results.json")
_TABLE = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end -->\n)", re.DOTALL)


@dataclass(frozen=True)
class Table:
    """The fixed part of a table, head first; each source adds columns or rows."""

    first: list[Cells]
    found: Callable[[Source], Iterator[Cells]]
    beside: bool = False

    def composed(self, parts: Mapping[str, list[Cells]]) -> list[Cells]:
        """All rows, with the parts of the sources."""
        if not self.beside:
            return [*self.first, *([name, *cells] for name, part in parts.items() for cells in part)]
        rows = [[*row] for row in self.first]
        for part in parts.values():
            for i, row in enumerate(rows):
                row.extend(part[i] if i < len(part) else ["-"] * len(part[0]))
        return rows


_UDP_ALONE = [[f"{asked} Mbit/s", f"{got} Mbit/s, {got / asked - 1:+.1%}"] for asked, got in UDP_ALONE]
_FETCHED = ["fetches", "with segments sent again", "mean of those without", "mean of those with"]
_REDUCED = [
    "reductions",
    "pipe - ssthresh at its begin",
    "pipe - ssthresh at its end",
    "cwnd - ssthresh at its end",
    "silence, RTTs",
    "length",
    "time-outs",
]
_RECOVERED = ["recoveries", "cwnd before", "cwnd after", "ratio", "median length", "timeouts"]
TABLES = {
    "udp_alone": Table([["original asked", "achieved"], *_UDP_ALONE], udp_alone, beside=True),
    "tcp_beside_udp": Table(
        [["where", "TCP", "UDP asked", "UDP, beside TCP", "UDP lost", "TCP, UDP on", "TCP, UDP off"]],
        tcp_beside_udp,
    ),
    "rejects": Table(
        [
            ["where", "TCP", "UDP", "sent again", "dropped by the router", "of them UDP", "rejected"],
            *(["original", "rapid", *map(str, counts)] for counts in REJECTS),
        ],
        rejects,
    ),
    "two_flows": Table(
        [["RTT", "pairs", "start", "original"], *(original("cubic", *case) for case in TWO_FLOWS)],
        two_flows,
        beside=True,
    ),
    "two_rapid": Table(
        [["RTT", "pairs", "start", "original"], *(original("rapid", *case) for case in TWO_RAPID)],
        two_rapid,
        beside=True,
    ),
    "udp_loss": Table(
        [["", "asked", "achieved", "lost"], ["original", "81 100 packets/s", "-", "0.014 %"]], udp_loss
    ),
    "long_transfer": Table(
        [["", "original, UCL to Manchester"], *([name, told] for name, told in LONG_TRANSFER.items())],
        long_transfer,
        beside=True,
    ),
    "web_fetches": Table([["where", "TCP", "loss", "body", *_FETCHED, "median of all"]], web_fetches),
    "queue_and_cwnd": Table([["where", "queue", *_RECOVERED]], queue_and_cwnd),
    "reductions": Table([["where", "loss", "TCP", *_REDUCED]], reductions),
}

Found = dict[str, dict[str, list[Cells]]]  # by table and source


def measured(sources: Sequence[Source], before: Found) -> Found:
    """The results of all sources; for tables without a valid run, the previous results."""
    found = {name: dict(before.get(name, {})) for name in TABLES}
    for name, table in TABLES.items():
        for source in sources:
            part = [*table.found(source)]
            if any({*cells} != {"-"} for cells in part[table.beside :]):  # columns have a head
                found[name][source.name] = part
    return found


def markdown(rows: Sequence[Cells]) -> str:
    """A table; its first row is the head."""
    head, *body = rows
    if not body:
        return "\nNo valid run yet.\n\n"
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ["---"] * len(head), *body))


def renewed(text: str, found: Found) -> str:
    """A document with its tables renewed. KeyError on an unknown table."""

    def table(match: re.Match[str]) -> str:
        return f"{match[1]}{markdown(TABLES[match[2]].composed(found[match[2]]))}{match[3]}"

    return _TABLE.sub(table, text)


def main() -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.results", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("sources", nargs="+", metavar="NAME=DIRECTORY", help="results of a suite")
    sources = []
    for word in parser.parse_args().sources:
        name, _, results = word.partition("=")
        sources.append(Source(name, Path(results)))
    found = measured(sources, json.loads(FOUND.read_text()))
    FOUND.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    DOCUMENT.write_text(renewed(DOCUMENT.read_text(), found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
