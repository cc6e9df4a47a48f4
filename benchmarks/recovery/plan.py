"""Draws the victims of each run and the times of kills from the seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

SIZE = 4  # ranks
FIRST_KILL = 0.5  # at most these seconds after all ranks are in their loop
SECOND_KILL = 0.2  # at most these seconds after the first
STORE_TURN = 10  # one in so many runs kills rank 0, which hosts the store
LARGEST = 1 << 20  # elements of 4 bytes

KINDS = ("one victim", "two victims", "with the store", "with the store, two")


@dataclass(frozen=True)
class Kill:
    victim: int
    pause: float  # seconds after the previous kill, or after all ranks are in their loop


@dataclass(frozen=True)
class Plan:
    """Kills of one run."""

    number: int
    seed: int
    kills: tuple[Kill, ...]

    @classmethod
    def draw(cls, number: int, seed: int) -> Plan:
        """Draws a plan. Every second run has two victims, also among those that kill rank 0."""
        drawn = random.Random(f"{seed}, run {number}")
        two = (number + number // STORE_TURN) % 2 == 1
        victims = drawn.sample(range(1, SIZE), 1 + two)
        if number % STORE_TURN == STORE_TURN - 1:
            victims[drawn.randrange(len(victims))] = 0
        pauses = (drawn.uniform(0, FIRST_KILL), drawn.uniform(0, SECOND_KILL))
        return cls(number, seed, tuple(map(Kill, victims, pauses)))

    @property
    def victims(self) -> tuple[int, ...]:
        return tuple(kill.victim for kill in self.kills)

    @property
    def survivors(self) -> tuple[int, ...]:
        return tuple(rank for rank in range(SIZE) if rank not in self.victims)

    @property
    def kind(self) -> str:
        return KINDS[2 * (0 in self.victims) + len(self.kills) - 1]

    def counts(self, generation: int) -> Iterator[int]:
        """Yields the elements of successive all_reduces, equal on all ranks: 8 bytes to 4 MiB."""
        drawn = random.Random(f"{self.seed}, run {self.number}, generation {generation}")
        while True:
            yield round(2 ** drawn.uniform(1, LARGEST.bit_length() - 1))

    def count_of(self, step: int) -> int:
        """Returns the elements of a step, for peers that number all_reduces across failures."""
        return next(self.counts(step))

    def __str__(self) -> str:
        first, *others = (f"rank {kill.victim}" for kill in self.kills)
        text = f"kills {first} after {self.kills[0].pause * 1e3:.1f} ms"
        for other, kill in zip(others, self.kills[1:], strict=True):
            text += f", {other} {kill.pause * 1e3:.1f} ms later"
        return f"run {self.number} of seed {self.seed} {text}"
