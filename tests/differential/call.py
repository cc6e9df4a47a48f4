"""One step on one rank: its tensors, the call, and the expected contents afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from tests.differential import values
from tests.differential.plan import WORLD, Step
from tests.differential.values import Box


@dataclass
class Call:
    """The call of one rank. Every tensor that it passes or receives is in `expected`."""

    start: Callable[[bool], Any]  # (async_op) -> Work, or None if the call has waited
    expected: list[tuple[str, Box, torch.Tensor]] = field(default_factory=list)
    check: Callable[[Any], str] | None = None  # (Work or None) -> another problem, or ""
    batched: Callable[[], dist.P2POp] | None = None  # for sends and receives


@dataclass
class Here:
    """One step on one rank of its group."""

    step: Step
    handle: Any  # a dist.ProcessGroup
    me: int
    seed: int
    number: int  # number of the step in the sequence
    device: str = "cpu"

    @property
    def size(self) -> int:
        return len(self.step.group)

    @property
    def global_root(self) -> int:
        return self.step.group[self.step.root]

    def row(self, rank: int) -> int:
        return self.step.rows[rank]

    def split(self, sender: int, receiver: int) -> int:
        return self.step.rows[sender * WORLD + receiver]

    def shape(self, rows: int | None = None) -> tuple[int, ...]:
        return self.step.shape if rows is None else (rows, *self.step.shape)

    def moved(self, shape: tuple[int, ...], *key: int) -> torch.Tensor:
        return values.moved(self.step.dtype, shape, values.noise(self.seed, self.number, *key))

    def given(self, shape: tuple[int, ...], *key: int) -> list[torch.Tensor]:
        """Returns each rank's input of a reduction."""
        step = self.step
        noises = [values.noise(self.seed, self.number, rank, *key) for rank in range(self.size)]
        return [values.reducible(step.dtype, step.reduction, self.size, shape, n) for n in noises]

    def reduced(self, rows: list[torch.Tensor]) -> torch.Tensor:
        return values.reduced(rows, self.step.reduction)

    def box(self, content: torch.Tensor) -> Box:
        return Box.of(content, self.step.layout, self.device)

    def blank(self, shape: tuple[int, ...]) -> Box:
        return self.box(values.zeros(values.DTYPES[self.step.dtype], shape))

    @property
    def op(self) -> Any:
        if self.step.reduction == "PREMUL_SUM":
            return dist._make_nccl_premul_sum(float(values.factor(self.me)))
        return getattr(dist.ReduceOp, self.step.reduction)
