"""Ansible's linear strategy over Mitogen: one Python per host that stays, not a new one for every task.

In the lab, where starting a process is dear, tasks take a tenth of the time; on hardware they gain too.
"""

from ansible_mitogen.plugins.strategy.mitogen_linear import StrategyModule

__all__ = ["StrategyModule"]
