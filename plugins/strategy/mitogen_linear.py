"""Ansible's linear strategy over Mitogen: one Python per host that stays, not a new one for every task.

In the lab, where starting a process is dear, tasks take a tenth of the time; on hardware they gain too.
"""

import logging

from ansible_mitogen import affinity
from ansible_mitogen.plugins.strategy.mitogen_linear import StrategyModule

# Mitogen pins its processes to cores, of which the lab's hosts then have less. The kernel knows better.
affinity.policy = affinity.Policy()

# What fails in one of its services is told to who asked it: its log would only add a traceback.
logging.getLogger("mitogen.service").setLevel(logging.CRITICAL)

__all__ = ["StrategyModule"]
