"""What examples/elastic_digits.py has written with --log, and whether it was training."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Record:
    """A line: one process in one step."""

    pid: int
    time: float
    what: str  # "began" or "committed"
    step: int
    epoch: int
    generation: int
    rank: int
    size: int
    indices: tuple[int, ...]  # of one that began
    loss: float
    parameters: str  # a hash


def read(folder: Path) -> list[Record]:
    records = []
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text().splitlines():
            if not line.endswith("}"):
                continue  # its process was killed as it wrote
            fields: dict[str, Any] = {"indices": (), "loss": 0.0, "parameters": ""}
            fields |= json.loads(line)
            fields["indices"] = tuple(fields["indices"])
            records.append(Record(pid=int(file.stem), **fields))
    return sorted(records, key=lambda one: one.time)


def committed(folder: Path) -> list[Record]:
    return [one for one in read(folder) if one.what == "committed"]


@dataclass(frozen=True)
class Step:
    """As it counts in the end."""

    number: int
    epoch: int
    generation: int
    size: int
    indices: tuple[int, ...]
    loss: float
    at: float  # when the last rank had committed it


class Course:
    """Of a training: its steps, and all that is wrong with it."""

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
            # Whom no survivor has heard may have committed what others repeat; and was dead then.
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
        # Each launch counts its generations from 0, so an earlier one may have begun this step in
        # a generation of the same number. It had another size; or else, of two records of a rank,
        # the later one counts.
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
        """Each index in one step of each of so many epochs."""
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
        """Of the group, each as often as it changed."""
        sizes: list[int] = []
        for one in self.steps:
            if not sizes or sizes[-1] != one.size:
                sizes.append(one.size)
        return sizes
