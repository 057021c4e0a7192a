"""Ansible's linear strategy over Mitogen: one Python per host that stays, not a new one for every task.

In the lab, where starting a process is dear, tasks take a tenth of the time; on hardware they gain too.
"""

from ansible_mitogen import affinity
from ansible_mitogen.plugins.strategy.mitogen_linear import StrategyModule

# Mitogen pins its processes to cores, of which the lab's hosts then have less. The kernel knows better.
affinity.policy = affinity.Policy()

__all__ = ["StrategyModule"]
