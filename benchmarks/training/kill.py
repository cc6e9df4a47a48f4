"""A kill in a training of four ranks, and what is read of it in the logs of its steps."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.records import Record, committed

RANKS = 4
PAUSE = 0.02  # seconds that a step takes longer, so that steps are as long as those of real models
WARM = 20 * RANKS  # records before the kill
_LIMIT = 120.0


@dataclass(frozen=True)
class Kill:
    """What came of one; seconds."""

    recovery: float  # to the next step of all who go on, less a step
    join: float | None  # how long the others stood still as another one came


def whole(folder: Path) -> list[Record]:
    """By the group of all."""
    return [one for one in committed(folder) if one.size == RANKS]


def step_time(records: list[Record]) -> float:
    """Of the steps of one rank: the median from one to the next."""
    mine = [one.time for one in records if one.rank == records[0].rank]
    return statistics.median(b - a for a, b in itertools.pairwise(mine))


def another_has_come(after: list[Record]) -> bool:
    """And has trained for a while."""
    return len(_again(after)) > WARM


def measure(killed: float, victim: int, before: list[Record], after: list[Record]) -> Kill:
    """Of a training that goes on without the one that was killed, and then with another one.

    Args:
        killed: when; by time.time().
        victim: its process id.
        before, after: what was committed until then, and from then on.
    """
    step = step_time(before)
    survivors = {one.pid for one in before} - {victim}
    without = [one for one in _without(after) if one.pid in survivors]
    first = _first_of_all(without)
    again = _first_of_all([one for one in _again(after) if one.pid in survivors])
    return Kill(first.time - killed - step, again.time - without[-1].time - step)


def _without(after: list[Record]) -> list[Record]:
    return [one for one in after if one.size == RANKS - 1]


def _again(after: list[Record]) -> list[Record]:
    without = _without(after)
    return [one for one in after if without and one.size == RANKS and one.time > without[-1].time]


def _first_of_all(records: list[Record]) -> Record:
    """When the last of the survivors had committed the first step."""
    step = min(one.step for one in records)
    for number in range(step, step + 3):  # of the first, some may have got the result from others
        mine = [one for one in records if one.step == number]
        if len(mine) == RANKS - 1:
            return mine[-1]
    raise SystemExit(f"no step from {step} on was committed by {RANKS - 1} ranks")


def wait_until(condition: Callable[[], bool], output: Callable[[], str]) -> None:
    deadline = time.monotonic() + _LIMIT
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"it does not go on within {_LIMIT:g} s\n{output()}")
        time.sleep(0.1)
