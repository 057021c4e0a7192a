"""A fluid model of cubic flows through one queue."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import cbrt
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
    t_ns = np.arange(steps) * 1_000_000
    shapes = [(steps, n), (steps, n), (steps, n), (steps,), (steps, n), (steps, n)]
    out = Fluid(connections, t_ns, *map(np.zeros, shapes))
    datagrams = [flow for flow in flows if flow.kind == "udp" and flow.rate_steps]
    windows = [_Window(flow) for flow, _ in connections]
    queue = 0.0
    for step in range(steps):
        t, at_ns = step * dt, step * 1_000_000
        taken_bps = sum(rate_bps(flow, at_ns) for flow in datagrams)
        capacity = (path.at(at_ns).rate_bps - taken_bps) / PACKET_BITS
        for window in windows:
            window.begin(at_ns, rtt_s + queue / capacity)
        rate = sum(window.rate for window in windows)
        served = min(rate, capacity) if queue < 1 else capacity
        queue = max(0.0, queue + (rate - served) * dt)
        over = max(queue - limit, 4.0) if queue > limit else 0.0
        queue = min(queue, float(limit))
        chances = rng.random(n) if over else None
        for i, window in enumerate(windows):
            share = window.rate / rate if rate else 0.0
            window.acked += share * served * dt
            window.lost += share * over
            if chances is not None and chances[i] < 2.5 * share:
                window.reduce(t)
            window.grow(t, dt)
        out.cwnd[step] = [window.cwnd for window in windows]
        out.acked[step] = [window.acked for window in windows]
        out.lost[step] = [window.lost for window in windows]
        out.queue[step] = queue
        out.rtt_s[step] = [window.rtt for window in windows]
        out.recovering[step] = [window.active and t < window.back_off_until for window in windows]
    return out


class _Window:
    """The congestion window of a connection, in plain numbers: for so few, arrays take five times as long."""

    def __init__(self, flow: Flow) -> None:
        self.start_ns, self.end_ns, self.own_s = flow.start_ns, flow.end_ns, (flow.delay_us or 0) / 1e6
        self.cwnd = self.w_max = self.epoch = self.back_off_until = self.acked = self.lost = 0.0
        self.active, self.slow, self.rtt, self.rate = False, True, 0.0, 0.0

    def begin(self, at_ns: int, rtt_s: float) -> None:
        self.active = self.start_ns <= at_ns < self.end_ns
        if self.active and self.cwnd == 0:
            self.cwnd = 10.0
        self.rtt = rtt_s + self.own_s
        self.rate = self.cwnd / self.rtt if self.active else 0.0

    def reduce(self, t: float) -> None:
        if self.active and t >= self.back_off_until:
            self.w_max, self.epoch, self.slow = self.cwnd, t, False
            self.cwnd *= 0.7
            self.back_off_until = t + self.rtt

    def grow(self, t: float, dt: float) -> None:
        if not self.active:
            return
        most = self.cwnd * (1 + dt / self.rtt)
        if not self.slow:
            since = t - self.epoch
            cubic = 0.4 * (since - cbrt(self.w_max * 0.3 / 0.4)) ** 3 + self.w_max
            reno = self.w_max * 0.7 + 3 * 0.3 / 1.7 * since / self.rtt
            most = min(most, max(cubic, reno, self.cwnd))
        self.cwnd = most


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
