"""``fab evaluate``: judge congestion controls by the field's criteria, in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dumbbell.cli import tell
from dumbbell.evaluation import EvaluationError
from dumbbell.evaluation.criteria import FOLDER, load
from dumbbell.evaluation.evaluation import PROFILES, Asked, Evaluation
from dumbbell.evaluation.judge import FAIL, NO_ANSWER, PASS
from dumbbell.evaluation.page import write
from dumbbell.evaluation.subject import Subject
from dumbbell.evaluation.told import text
from dumbbell.inventory import InventoryError
from dumbbell.kernels import DoesNotBuild, KernelError
from dumbbell.scenario import ScenarioError
from dumbbell.suite import NO_STATEMENT, STATUS, interrupted

EXIT = {PASS: STATUS["passed"], FAIL: STATUS["failed"], NO_ANSWER: NO_STATEMENT}


def evaluate(
    candidates: Sequence[str],
    inventory: Path,
    results: Path,
    *,
    against: Sequence[str] = (),
    kernel: str | None = None,
    profile: str = PROFILES[0],
    criteria: Path = FOLDER,
    name: str | None = None,
) -> None:
    """Run what has no result yet, write the page below ``results``, and print the table of criteria.

    SystemExit with 1 if a criterion fails, with 2 if one has no answer.
    """
    try:
        if profile not in PROFILES:
            raise EvaluationError(f"--profile {profile}: there are {' and '.join(PROFILES)}")
        asked = Asked(
            candidates=[Subject.of(candidate, kernel) for candidate in candidates],
            files=load(criteria),
            inventory=inventory,
            results=results,
            profile=profile,
            against=against,
        )
        evaluation = Evaluation(asked)
        tell(evaluation.announced())
        words = [subject.file_name for subject in asked.candidates]
        folder = results / (name or "_".join(["evaluation", *words, profile]))
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "playbooks.log").open("a") as log:
            evaluation.run(tell, log)
        judgement = evaluation.judged()
        page = write(folder, judgement)
        tell(f"\n{text(judgement)}\n\n{page}")
    except (
        *(EvaluationError, ScenarioError, InventoryError, KernelError, DoesNotBuild),
        *(OSError, ValueError),
    ) as error:
        tell(str(error))
        raise SystemExit(NO_STATEMENT) from None
    except KeyboardInterrupt:
        raise SystemExit(interrupted()) from None
    states = [result.state for found in judgement.results.values() for result in found]
    raise SystemExit(max(EXIT[state] for state in states))
