"""Records that examples/elastic_digits.py writes with --log, and checks that they are a
training."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Record:
    """One line of a log: one process in one step."""

    pid: int
    time: float
    what: str  # "began" or "committed"
    step: int
    epoch: int
    generation: int
    rank: int
    size: int
    indices: tuple[int, ...]  # if the step began
    loss: float
    parameters: str  # a hash


def read(folder: Path) -> list[Record]:
    records = []
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text().splitlines():
            if not line.endswith("}"):
                continue  # the process was killed while writing
            fields: dict[str, Any] = {"indices": (), "loss": 0.0, "parameters": ""}
            fields |= json.loads(line)
            fields["indices"] = tuple(fields["indices"])
            records.append(Record(pid=int(file.stem), **fields))
    return sorted(records, key=lambda one: one.time)


def committed(folder: Path) -> list[Record]:
    return [one for one in read(folder) if one.what == "committed"]


@dataclass(frozen=True)
class Step:
    """A step as it counts in the end."""

    number: int
    epoch: int
    generation: int
    size: int
    indices: tuple[int, ...]
    loss: float
    at: float  # time at which the last rank had committed it


class Course:
    """A training: its steps, and all problems found in it."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.problems: list[str] = []
        self._by_step: dict[int, list[Record]] = defaultdict(list)
        for one in records:
            self._by_step[one.step].append(one)
        self._last_life = {one.pid: one.time for one in records}
        numbers = sorted({one.step for one in records if one.what == "committed"})
        if numbers != list(range(1, len(numbers) + 1)):
            self.problems.append(f"steps are missing: {numbers}")
        self.steps = [self._step(number) for number in numbers]

    def _step(self, number: int) -> Step:
        mine = self._by_step[number]
        committed = [one for one in mine if one.what == "committed"]
        last = max(one.generation for one in committed)
        for one in committed:
            # A rank may have committed a step that others repeat, if none of them received its
            # report. This is right only if the rank was dead by then.
            again = [two.time for two in committed if two.generation > one.generation]
            if again and self._last_life[one.pid] > min(again):
                self.problems.append(
                    f"step {number} was committed in generation {one.generation} by process "
                    f"{one.pid}, which goes on, and again in {last}"
                )
        counted = [one for one in committed if one.generation == last]
        for name in ("loss", "parameters", "epoch", "size"):
            if len(values := {getattr(one, name) for one in counted}) != 1:
                self.problems.append(f"step {number}: {name} is not the same on all: {values}")
        size = counted[0].size
        # Each launch counts generations from 0, so an earlier launch may have begun this step in a
        # generation of the same number. It had another size, or the later record of a rank counts.
        tries = (one for one in mine if (one.generation, one.size) == (last, size))
        began = {one.rank: one for one in tries if one.what == "began"}
        if sorted(began) != list(range(size)):
            self.problems.append(f"step {number}: {sorted(began)} of {size} ranks began it")
        indices = tuple(at for rank in sorted(began) for at in began[rank].indices)
        return Step(
            number,
            counted[0].epoch,
            last,
            size,
            indices,
            counted[0].loss,
            max(one.time for one in counted),
        )

    def check_epochs(self, images: int, epochs: int) -> None:
        """Checks that each index is in one step of each epoch."""
        for epoch in range(epochs):
            taken = Counter(at for one in self.steps if one.epoch == epoch for at in one.indices)
            if taken != Counter(range(images)):
                twice = [at for at, often in taken.items() if often > 1]
                missing = [at for at in range(images) if at not in taken]
                self.problems.append(f"epoch {epoch}: twice {twice}, not at all {missing}")

    def check_losses(self, expected: Sequence[float], tolerance: float) -> None:
        losses = [one.loss for one in self.steps]
        if len(losses) != len(expected):
            self.problems.append(f"{len(losses)} steps, expected {len(expected)}")
        apart = max((abs(a - b) for a, b in zip(losses, expected, strict=False)), default=0.0)
        if not apart <= tolerance:
            self.problems.append(f"losses are up to {apart} from those without losses of ranks")

    @property
    def sizes(self) -> list[int]:
        """Returns the sizes of the group in order, one entry per change."""
        sizes: list[int] = []
        for one in self.steps:
            if not sizes or sizes[-1] != one.size:
                sizes.append(one.size)
        return sizes
