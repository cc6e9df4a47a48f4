"""Schedule of the faults, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

# Seconds. A process that is stopped for less than the peer timeout is not lost.
PEER_TIMEOUT = 3.0
SHORT_STOP, LONG_STOP = (0.1, 1.0), (PEER_TIMEOUT + 2, PEER_TIMEOUT + 4)

KILL, KILL_TWICE, KILL_MOST, STOP, STOP_LONG, LEAVE = (
    *("kill", "kill, and another in the recovery", "kill all but one"),
    *("stop for a moment", "stop for longer than the peer timeout", "ask to leave"),
)
# Relative frequencies.
_WEIGHTS = {KILL: 8, KILL_TWICE: 5, KILL_MOST: 1, STOP: 3, STOP_LONG: 1, LEAVE: 2}


@dataclass(frozen=True)
class Action:
    pause: float  # seconds since the previous action
    what: str
    choice: float  # selects the rank, as a share of the present ranks
    rank_0: bool  # selects rank 0 instead
    delay: float  # seconds until the second kill, or of a stop


def draw(seed: int) -> Iterator[Action]:
    drawn = random.Random(seed)
    while True:
        what = drawn.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        delay = drawn.uniform(0, 0.2)
        if what == STOP:
            delay = drawn.uniform(*SHORT_STOP)
        elif what == STOP_LONG:
            delay = drawn.uniform(*LONG_STOP)
        yield Action(drawn.uniform(0.5, 6), what, drawn.random(), drawn.random() < 0.25, delay)
