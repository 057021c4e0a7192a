"""Write the tables of criteria in ``docs/evaluation.md`` from ``suites/evaluation`` (``make docs``)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dumbbell.evaluation.criteria import load
from dumbbell.evaluation.judge import bound_in_words, metric_in_words

BEGIN = "The table is made from the files (`make docs`).\n"
END = "\n<!-- end of the criteria -->\n"


def tables() -> Iterator[str]:
    """A heading, a text and a table for each family."""
    for file in load():
        family = file.family
        yield f"### {family.title}\n\n{family.shows} Not shown: {_inside(family.lacks)}\n"
        cells = [
            (f"`{of.name}`", of.title, f"{metric_in_words(of)} {bound_in_words(of)}", of.source, of.lacks)
            for of in family.criteria
        ]
        rows = [f"| {' | '.join(own)} |" for own in cells]
        head = ["| criterion | | bound | source | does not show |", "|---|---|---|---|---|"]
        yield "\n".join([*head, *rows]) + "\n"


def documented(text: str) -> str:
    """The document with the current tables."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n" + "\n".join(tables()) + END + after


def _inside(text: str) -> str:
    """A sentence as it goes on after a colon."""
    return text[:1].lower() + text[1:]


if __name__ == "__main__":
    path = Path("docs/evaluation.md")
    path.write_text(documented(path.read_text()))
