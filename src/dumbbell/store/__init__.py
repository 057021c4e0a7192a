"""The run store: spools in, tables, manifest, events and verdict out, and every row in InfluxDB."""

from dumbbell.store.collect import collect
from dumbbell.store.influx import InfluxTarget
from dumbbell.store.summary import summarise
from dumbbell.store.verdict import Check, Verdict

__all__ = ["Check", "InfluxTarget", "Verdict", "collect", "summarise"]
