"""A fluid model of cubic flows through one queue."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dumbbell.plan import Direction, Flow

MSS = 1448
PACKET_BITS = 1514 * 8


@dataclass
class Fluid:
    """Connections of cubic flows and a drop-tail queue, in steps of one millisecond."""

    connections: list[tuple[Flow, int]]  # flow and number of its stream
    t_ns: np.ndarray[Any, Any]
    cwnd: np.ndarray[Any, Any]  # [step, connection], packets
    acked: np.ndarray[Any, Any]  # [step, connection], packets delivered so far
    lost: np.ndarray[Any, Any]  # [step, connection], packets lost so far
    queue: np.ndarray[Any, Any]  # [step], packets
    rtt_s: np.ndarray[Any, Any]  # [step, connection]
    recovering: np.ndarray[Any, Any]  # [step, connection], 1 for a round trip after a loss


def simulate(flows: list[Flow], path: Direction, rtt_s: float, duration_s: float, seed: int) -> Fluid:
    """Rates follow cwnd / RTT; a full queue costs the connection that is hit 30 % of its window."""
    own = ("udp", "http")  # of the agents, which tell of them without samples
    connections = [(flow, stream) for flow in flows if flow.kind not in own for stream in range(flow.streams)]
    rng = np.random.default_rng(seed)
    dt, limit = 1e-3, path.queue.limit_packets or 100
    steps, n = round(duration_s / dt), len(connections)
    cwnd, w_max, epoch = np.zeros(n), np.zeros(n), np.zeros(n)
    slow, back_off_until = np.ones(n, bool), np.zeros(n)
    queue, acked, lost = 0.0, np.zeros(n), np.zeros(n)
    t_ns = np.arange(steps) * 1_000_000
    own_s = np.array([(flow.delay_us or 0) / 1e6 for flow, _ in connections])
    shapes = [(steps, n), (steps, n), (steps, n), (steps,), (steps, n), (steps, n)]
    datagrams = [flow for flow in flows if flow.kind == "udp" and flow.rate_steps]
    out = Fluid(connections, t_ns, *map(np.zeros, shapes))
    for step in range(steps):
        t = step * dt
        taken_bps = sum(rate_bps(flow, round(t * 1e9)) for flow in datagrams)
        capacity = (path.at(round(t * 1e9)).rate_bps - taken_bps) / PACKET_BITS
        active = np.array([f.start_ns <= t * 1e9 < f.end_ns for f, _ in connections], dtype=bool)
        starting = active & (cwnd == 0)
        cwnd[starting] = 10
        rtt = rtt_s + own_s + queue / capacity
        rate = np.where(active, cwnd / rtt, 0)
        served = min(rate.sum(), capacity) if queue < 1 else capacity
        share = rate / rate.sum() if rate.sum() else np.zeros(n)
        acked += share * served * dt
        queue = max(0.0, queue + (rate.sum() - served) * dt)
        if queue > limit:
            over = max(queue - limit, 4.0)
            lost += share * over
            queue = float(limit)
            hit = active & (t >= back_off_until) & (rng.random(n) < np.minimum(1, 2.5 * share))
            w_max[hit], epoch[hit], slow[hit] = cwnd[hit], t, False
            cwnd[hit] *= 0.7
            back_off_until[hit] = t + rtt[hit]
        k = np.cbrt(w_max * 0.3 / 0.4)
        cubic = 0.4 * (t - epoch - k) ** 3 + w_max
        reno = w_max * 0.7 + 3 * 0.3 / 1.7 * (t - epoch) / rtt
        grown = np.where(slow, cwnd * (1 + dt / rtt), np.maximum(np.maximum(cubic, reno), cwnd))
        cwnd = np.where(active, np.minimum(grown, cwnd * (1 + dt / rtt)), cwnd)
        out.cwnd[step], out.acked[step], out.lost[step] = cwnd, acked, lost
        out.queue[step], out.rtt_s[step] = queue, rtt
        out.recovering[step] = active & (t < back_off_until)
    return out


def received_bytes(fluid: Fluid, step: int, connection: int) -> int:
    """What the receiver's kernel has counted by a step, with a greeting of 37 bytes."""
    return 37 + round(float(fluid.acked[min(step, len(fluid.t_ns) - 1), connection]) * MSS)


def rate_bps(flow: Flow, at_ns: int) -> int:
    """Rate that is asked of a flow of datagrams at a time."""
    if not flow.start_ns <= at_ns < flow.end_ns:
        return 0
    steps = [(0, flow.rate_bps or 0), *((step.at_ns, step.rate_bps) for step in flow.rate_steps or [])]
    return [rate for since, rate in steps if flow.start_ns + since <= at_ns][-1]


def sent_bits(flow: Flow, until_ns: int) -> float:
    """Payload that a flow of datagrams has sent by a time, at the rates that are asked of it."""
    times = [flow.start_ns, *(flow.start_ns + step.at_ns for step in flow.rate_steps or []), flow.end_ns]
    spans = [(since, min(until, until_ns)) for since, until in pairwise(times) if since < until_ns]
    return sum(rate_bps(flow, since) * (until - since) / 1e9 for since, until in spans)
