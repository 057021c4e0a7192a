"""The scenario language: what a ``scenarios/*.yml`` file may say, and the errors when it says something else.

:func:`load` reads a file into a :class:`Scenario` and remembers the line and column of every key, so that the
planner's errors point into the file too. ``python -m dumbbell.model [FILE]`` writes the JSON Schema.
"""

from dumbbell.model.flows import TcpFlow, UdpFlow
from dumbbell.model.load import KeyPath, Problem, ScenarioError, ScenarioFile, load
from dumbbell.model.path import Direction, NetworkPath, Queue
from dumbbell.model.scenario import Expectation, HostState, Metric, Sampling, Scenario, Validity, schema

__all__ = [
    "Direction",
    "Expectation",
    "HostState",
    "KeyPath",
    "Metric",
    "NetworkPath",
    "Problem",
    "Queue",
    "Sampling",
    "Scenario",
    "ScenarioError",
    "ScenarioFile",
    "TcpFlow",
    "UdpFlow",
    "Validity",
    "load",
    "schema",
]
