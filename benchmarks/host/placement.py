"""How far apart two ranks' cores are, as a flag that goes back and forth between them tells.

A virtual machine says little about its cores, and moves them: so it is measured, again and again.
"""

from __future__ import annotations

import time

from benchmarks.host.flags import Flags
from benchmarks.ranks import SpinBarrier

ROUNDS, BATCHES = 500, 8
NEAR_NS = 130  # one way; siblings of a core, or one cache: about 60; other caches: about 260
SAME_NS = 3000  # they take turns on one core


def classify(hop_ns: float | None) -> str:
    """ "near", "far" or "same", from the time of one way; "alone" without one."""
    if hop_ns is None:
        return "alone"
    if hop_ns >= SAME_NS:
        return "same"
    return "near" if hop_ns < NEAR_NS else "far"


def hop(round_trip_ns: float, step_ns: float) -> float:
    """One way, without the interpreter's time for a store and a look."""
    return max(0.0, round_trip_ns / 2 - step_ns)


def _step(flags: Flags) -> float:
    """The interpreter's time for one store and one look, in nanoseconds."""
    best = float("inf")
    for _ in range(BATCHES):
        start = time.perf_counter_ns()
        flags.step(ROUNDS)
        best = min(best, (time.perf_counter_ns() - start) / ROUNDS)
    return best


def measure(barrier: SpinBarrier, flags: Flags | None) -> float | None:
    """One way between rank 0 and rank 1 in nanoseconds, of the best batch.

    Every rank calls it; those without flags wait and get None.
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
