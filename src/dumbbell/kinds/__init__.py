"""Kinds of flows. Each kind has a module in ``asked`` and one in ``found``, which import all their modules.

``asked``: the keys of a scenario and the kind's part of the plan. ``found``: the files that a flow writes,
the checks of a run, and the kind's part of the tables. What the hosts do is in ``agent/kind``.
"""
