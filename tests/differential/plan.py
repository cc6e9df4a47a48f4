"""Parts of a sequence: plain values, which every rank gets completely and JSON can represent."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

WORLD = 3  # ranks of the pool


@dataclass(frozen=True)
class Step:
    """One operation of the ranks `group`. Ranks in it are positions in the group.

    Fields that an operation does not use keep their defaults.
    """

    op: str
    group: tuple[int, ...] = (0, 1, 2)
    dtype: str = "float32"
    shape: tuple[int, ...] = (1,)  # shape of a tensor, or of a row where `rows` count
    rows: tuple[int, ...] = (
        1,
    ) * WORLD**2  # parts by rank; for all-to-all sender * WORLD + receiver
    reduction: str = "SUM"
    root: int = 0  # also the sender
    peer: int = 1  # the receiver
    tag: int = 0
    layout: str = "contiguous"
    variant: bool = False  # its meaning depends on the operation
    lag: int = 0  # steps until its Work is awaited, or 0 if the call blocks


@dataclass(frozen=True)
class Region:
    """Steps of one group that start together."""

    style: str  # "region", "manager" or "batch"
    steps: tuple[Step, ...]
    lag: int = 0

    @property
    def group(self) -> tuple[int, ...]:
        return self.steps[0].group


@dataclass(frozen=True)
class Plan:
    """A sequence. All tensors follow from `seed` and the position of their step."""

    steps: tuple[Step | Region, ...]
    seed: int = 0
    fresh_groups: bool = False  # created for this sequence and destroyed at its end
    device: str = "cpu"  # device of the tensors

    def groups(self) -> list[tuple[int, ...]]:
        return sorted({step.group for step in self.steps})

    def flat(self) -> Iterator[Step]:
        for step in self.steps:
            yield from step.steps if isinstance(step, Region) else (step,)

    def shorter(self) -> Iterator[Plan]:
        """Yields this plan without one step, or without one step of a region, starting from the
        end."""
        for at, step in reversed(list(enumerate(self.steps))):
            before, after = self.steps[:at], self.steps[at + 1 :]
            if before or after:
                yield dataclasses.replace(self, steps=before + after)
            inner = step.steps if isinstance(step, Region) and len(step.steps) > 1 else ()
            for i in reversed(range(len(inner))):
                less = dataclasses.replace(step, steps=inner[:i] + inner[i + 1 :])
                yield dataclasses.replace(self, steps=(*before, less, *after))

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Parses JSON. Raises ValueError, KeyError or TypeError if `text` is not from to_json()."""
        values = json.loads(text)
        return cls(**{**values, "steps": tuple(map(_step, values["steps"]))})

    def __str__(self) -> str:
        own = ", groups of its own" if self.fresh_groups else ""
        lines = [f"data seed {self.seed}, on {self.device}{own}"]
        for i, step in enumerate(self.steps):
            if isinstance(step, Region):
                lines.append(f"{i}: {step.style}{_lag(step)} of")
                lines += [f"     {_line(inner)}" for inner in step.steps]
            else:
                lines.append(f"{i}: {_line(step)}")
        return "\n".join(lines)


def _step(values: dict[str, Any]) -> Step | Region:
    if "style" in values:
        return Region(values["style"], tuple(map(_step, values["steps"])), values["lag"])
    return Step(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def _lag(step: Step | Region) -> str:
    return f", waited for {step.lag} steps later" if step.lag else ""


def _line(step: Step) -> str:
    """Formats the fields that differ from their defaults."""
    named = [
        f"{f.name}={getattr(step, f.name)}"
        for f in dataclasses.fields(step)
        if f.name not in ("op", "lag") and getattr(step, f.name) != f.default
    ]
    return f"{step.op} {' '.join(named)}{_lag(step)}"
