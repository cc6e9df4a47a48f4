"""Evaluates a kill in a training of four ranks from the logs of its steps."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.records import Record, committed

RANKS = 4
PAUSE = 0.02  # seconds added to a step, so that steps are as long as those of real models
WARM = 20 * RANKS  # number of records before the kill
_LIMIT = 120.0


@dataclass(frozen=True)
class Kill:
    """Result of a kill, in seconds."""

    recovery: float  # time to the next step of all survivors, less a step
    join: float | None  # pause of the others when another rank joined


def whole(folder: Path) -> list[Record]:
    """Returns the records of steps with all ranks."""
    return [one for one in committed(folder) if one.size == RANKS]


def step_time(records: list[Record]) -> float:
    """Returns the median time between steps of one rank."""
    mine = [one.time for one in records if one.rank == records[0].rank]
    return statistics.median(b - a for a, b in itertools.pairwise(mine))


def another_has_come(after: list[Record]) -> bool:
    """Returns True if another rank has joined and trained for a while."""
    return len(_again(after)) > WARM


def measure(killed: float, victim: int, before: list[Record], after: list[Record]) -> Kill:
    """Evaluates a training that continues without the victim, and then with another rank.

    Args:
        killed: time of the kill, by time.time().
        victim: process id of the victim.
        before, after: records of commits before the kill, and after it.
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
    """Returns the record with which the last survivor committed the first common step."""
    step = min(one.step for one in records)
    for number in range(step, step + 3):  # a rank may have got the result from others
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
