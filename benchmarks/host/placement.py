"""Measures the distance between the cores of two ranks by a flag that goes back and forth.

A virtual machine gives little information about its cores, and moves them. So the distance is
measured repeatedly.
"""

from __future__ import annotations

import time

from benchmarks.host.flags import Flags
from benchmarks.ranks import SpinBarrier

ROUNDS, BATCHES = 500, 8
NEAR_NS = 130  # one way: about 60 within a core or cache, about 260 between caches
SAME_NS = 3000  # they take turns on one core


def classify(hop_ns: float | None) -> str:
    """Returns "near", "far" or "same" for the time of one way; "alone" without a time."""
    if hop_ns is None:
        return "alone"
    if hop_ns >= SAME_NS:
        return "same"
    return "near" if hop_ns < NEAR_NS else "far"


def hop(round_trip_ns: float, step_ns: float) -> float:
    """Returns the time of one way, without the interpreter's time for a store and a load."""
    return max(0.0, round_trip_ns / 2 - step_ns)


def _step(flags: Flags) -> float:
    """Returns the interpreter's time for one store and one load, in nanoseconds."""
    best = float("inf")
    for _ in range(BATCHES):
        start = time.perf_counter_ns()
        flags.step(ROUNDS)
        best = min(best, (time.perf_counter_ns() - start) / ROUNDS)
    return best


def measure(barrier: SpinBarrier, flags: Flags | None) -> float | None:
    """Returns the time of one way between rank 0 and rank 1 in nanoseconds, for the best batch.

    Every rank calls it. Ranks without flags wait and get None.
    """
    best = float("inf")
    share_a_core = False
    for _ in range(BATCHES):
        barrier.wait()
        if flags is None or share_a_core:
            continue
        start = time.perf_counter_ns()
        rounds = flags.play(ROUNDS)
        best = min(best, (time.perf_counter_ns() - start) / max(1, rounds))
        share_a_core = rounds < ROUNDS
    barrier.wait()
    return hop(best, _step(flags)) if flags is not None else None
