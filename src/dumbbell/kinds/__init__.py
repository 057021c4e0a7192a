"""Kinds of flows. A kind is a module in ``asked`` and one in ``found``, which find their modules themselves.

``asked``: its keys in a scenario, and what the plan says of it. ``found``: the files that it leaves, the
checks of a run, and its part of the tables. What hosts do is in ``agent/kind``.
"""
