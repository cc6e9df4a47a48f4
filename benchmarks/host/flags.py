"""Two flags in shared memory, one for each of two ranks, which go back and forth between them."""

from __future__ import annotations

import mmap
import time
from pathlib import Path

from benchmarks.ranks import SLOT

BYTES = 3 * SLOT  # size of the file; no rank waits for the third flag
PATIENCE = 0.02  # seconds


class Flags:
    """One of the two players. Both must play the same rounds in the same order."""

    def __init__(self, path: Path, first: bool) -> None:
        with path.open("r+b") as file:
            self._flags = memoryview(mmap.mmap(file.fileno(), BYTES)).cast("Q")
        self._first = first
        self._round = 0

    def play(self, rounds: int) -> int:
        """Sends a flag and waits for the other, without yielding. Returns the number of completed
        rounds, equal on both ranks. It is less than `rounds` if the two take turns on one core."""
        flags, begin, end = self._flags, self._round, self._round + rounds
        first = self._first
        mine, theirs = (0, SLOT // 8) if first else (SLOT // 8, 0)
        turn = begin
        deadline = time.perf_counter() + PATIENCE
        while turn < end:
            if first:
                late = turn % 4 == 3 and time.perf_counter() > deadline
                flags[mine] = following = end if late else turn + 1
                while flags[theirs] < following:
                    pass
            else:
                while flags[theirs] <= turn:
                    pass
                flags[mine] = following = flags[theirs]
            if following > turn + 1:
                break
            turn = following
        self._round = end
        return turn - begin

    def step(self, rounds: int) -> None:
        """Runs the work of play() without the waiting."""
        flags, idle = self._flags, 2 * SLOT // 8
        for turn in range(1, rounds + 1):
            flags[idle] = turn
            if flags[idle] < turn:
                pass
