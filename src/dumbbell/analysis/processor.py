"""Saturation of processors."""

from __future__ import annotations

import polars as pl

IDLE_SHARE = 0.01  # of an interval between two samples; less is no time left

_CORE = ("host", "cpu")


def _intervals(cpu_core: pl.DataFrame) -> pl.DataFrame:
    """Each time between two samples of a core, by its end: ``[host, cpu, t_ns, dt_ns, busy]``."""
    idle_ns = (pl.col("idle_ms") + pl.col("iowait_ms")) * 1_000_000
    intervals = cpu_core.sort("t_ns").with_columns(
        idle_ns=idle_ns.diff().over(_CORE), dt_ns=pl.col("t_ns").diff().over(_CORE)
    )
    busy = pl.col("idle_ns") < IDLE_SHARE * pl.col("dt_ns")
    return intervals.drop_nulls("dt_ns").select(*_CORE, "t_ns", "dt_ns", busy=busy)


def busy_intervals(cpu_core: pl.DataFrame) -> pl.DataFrame:
    """Whether any core of a host had less than 1 % idle, ``[host, t_ns, busy]``, between two samples each."""
    return _intervals(cpu_core).group_by("host", "t_ns").agg(pl.col("busy").any()).sort("host", "t_ns")


def saturated(cpu_core: pl.DataFrame) -> dict[str, float]:
    """Share of the sampled time in which a host's busiest core had less than 1 % idle, by host.

    ``cpu_core`` has the kernel's counters ``idle_ms`` and ``iowait_ms`` of each core, and ``t_ns``. A virtual
    machine's kernel takes most of the time in which it waited for the machine's core for its own work. Hosts
    with fewer than two samples are absent.
    """
    busy_ns = pl.col("dt_ns").filter(pl.col("busy")).sum()
    cores = _intervals(cpu_core).group_by(_CORE).agg(share=busy_ns / pl.col("dt_ns").sum())
    return dict(cores.group_by("host").agg(pl.col("share").max()).iter_rows())
