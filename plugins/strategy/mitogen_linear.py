"""Ansible's linear strategy over Mitogen: one Python per host that stays, not a new one for every task.

In the lab, where starting a process is dear, tasks take a tenth of the time; on hardware they gain too.
"""

import gc
import logging

from ansible_mitogen import affinity
from ansible_mitogen.planner import NewStylePlanner, Planner
from ansible_mitogen.plugins.strategy.mitogen_linear import StrategyModule

# Mitogen pins its processes to cores, of which the lab's hosts then have less. The kernel knows better.
affinity.policy = affinity.Policy()


def _should_fork(planner: NewStylePlanner) -> bool:
    return Planner.should_fork(planner) or planner._inv.module_name in planner.ALWAYS_FORK_MODULES


# Modules that share code in module_utils it would run in a fork, which takes a lab's host up to two seconds.
# It unloads that code after each task as it is.
NewStylePlanner.should_fork = _should_fork

# What fails in one of its services is told to who asked it: its log would only add a traceback.
logging.getLogger("mitogen.service").setLevel(logging.CRITICAL)

# Each task of each host is a fork of this process, and shares its memory until a collection of garbage
# writes to all of it. What there is now is left out of those.
gc.freeze()

__all__ = ["StrategyModule"]
