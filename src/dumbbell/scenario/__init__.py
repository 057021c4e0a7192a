"""The scenario language: reading ``scenarios/*.yml``, and reporting their errors.

:func:`load` reads a file into the cases of a :class:`Scenario` and remembers the line and column of every
key, so that the planner's errors point into the file too. ``python -m dumbbell.scenario`` generates the JSON
Schema and the reference from the models.
"""

from dumbbell.scenario.document import Scenario
from dumbbell.scenario.load import ScenarioCase, ScenarioFile, load, traces_of
from dumbbell.scenario.path import LIMIT_UNIT, Direction, NetworkPath, Queue, QueueKind
from dumbbell.scenario.problems import KeyPath, Problem, ScenarioError

__all__ = [
    "LIMIT_UNIT",
    "Direction",
    "KeyPath",
    "NetworkPath",
    "Problem",
    "Queue",
    "QueueKind",
    "Scenario",
    "ScenarioCase",
    "ScenarioError",
    "ScenarioFile",
    "load",
    "traces_of",
]
