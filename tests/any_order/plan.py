"""The calls by name that a seed draws, the same on all ranks."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch

import torch_ringdist.horovod as hvd

WORLD = 4
SETS = [[0, 1, 2, 3], [0, 1], [1, 2, 3], [0, 2], [3]]  # the first is the global one
NAMES = 200

KINDS = [
    *("allreduce", "allreduce_", "grouped_allreduce", "grouped_allreduce_", "broadcast"),
    *("broadcast_", "allgather", "grouped_allgather", "alltoall", "reducescatter"),
    "grouped_reducescatter",
]
DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.int32, torch.int64, torch.uint8),
]
OPS = [hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product]


@dataclass(frozen=True)
class Call:
    """Attributes:
    process_set: a place in SETS.
    dtypes, shapes: of each tensor. Where ranks may have their own number of rows, they do.
    root: a global rank.
    splits: of alltoall; without, all ranks get as many rows.
    times: how often it is called; again when it has ended, with other values and rows.
    odd: a global rank that calls something else the first time, which all must be told.
    seed: of the values.
    """

    name: str
    kind: str
    process_set: int
    dtypes: tuple[torch.dtype, ...]
    shapes: tuple[tuple[int, ...], ...]
    op: hvd.mpi_ops.ReduceOp
    factors: tuple[float, float]
    root: int
    splits: bool
    times: int
    odd: int | None
    seed: int

    @property
    def members(self) -> list[int]:
        return SETS[self.process_set]


def plan(seed: int) -> list[Call]:
    """NAMES of them."""
    drawn = random.Random(seed)
    out: list[Call] = []
    for number in range(NAMES):
        process_set, name = drawn.choice([0, 0, *range(len(SETS))]), f"call {number}"
        if number % 8 == 7:  # process sets have names of their own
            name = out[-1].name
            process_set = (out[-1].process_set + drawn.randrange(1, len(SETS))) % len(SETS)
        out.append(_call(drawn, name, process_set))
    return out


def _call(drawn: random.Random, name: str, process_set: int) -> Call:
    kind = drawn.choice(KINDS)
    count = drawn.randint(1, 5) if kind.startswith("grouped") else 1
    scatters = "reducescatter" in kind
    scaled = ("allreduce" in kind or scatters) and drawn.random() < 0.3
    is_odd = len(SETS[process_set]) > 1 and drawn.random() < 0.05
    return Call(
        name=name,
        kind=kind,
        process_set=process_set,
        dtypes=tuple(drawn.choice(DTYPES) for _ in range(count)),
        shapes=tuple(_shape(drawn, least=int(scatters)) for _ in range(count)),
        op=drawn.choice(OPS[:2] if scatters or scaled else OPS),
        factors=(drawn.choice([0.5, 1, 2]), drawn.choice([0.5, 1, 2])) if scaled else (1, 1),
        root=drawn.choice(SETS[process_set]),
        splits=drawn.random() < 0.7,
        times=drawn.choice([1, 1, 1, 2]),
        odd=drawn.choice(SETS[process_set]) if is_odd else None,
        seed=drawn.randrange(1 << 30),
    )


def _shape(drawn: random.Random, least: int) -> tuple[int, ...]:
    """Of at least so many dimensions; some are long, and some empty."""
    if drawn.random() < 0.04:
        return (drawn.randint(1000, 10_000),)
    lowest = 0 if drawn.random() < 0.1 else 1
    return tuple(drawn.randint(lowest, 6) for _ in range(drawn.randint(least, 3)))
