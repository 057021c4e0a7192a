"""How faithfully a testbed emulates a path: what to measure, and what was measured against what was asked.

``playbooks/fidelity.yml`` measures. ``python -m dumbbell.fidelity cells`` prints what it shall measure,
``again DIR`` what of it deserves a second look, and ``judge DIR`` prints the table, and fails where a
tolerance is not met.

In every cell both directions carry more UDP than the bottleneck lets through. Datagrams are numbered, so
that those sent, received, lost, duplicated and overtaken are known exactly; counters of queues, netems and
interfaces say where the lost ones went.
"""
