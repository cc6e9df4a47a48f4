"""The calls by name that a seed draws, equal on all ranks."""

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
    """One call by name on all ranks of a process set.

    `process_set` is an index into SETS. `dtypes` and `shapes` are those of each tensor; ranks have
    different numbers of rows where the kind allows it. `root` is a global rank. `splits` applies to
    alltoall; without it, all ranks get the same number of rows.

    `times` is the number of calls. A repetition starts when the previous call has ended, with other
    values and rows. `odd` is a global rank that calls something else the first time, so that all
    ranks must get an error. `seed` is the seed of the values.
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
    """Returns NAMES calls."""
    drawn = random.Random(seed)
    out: list[Call] = []
    for number in range(NAMES):
        process_set, name = drawn.choice([0, 0, *range(len(SETS))]), f"call {number}"
        if number % 8 == 7:  # process sets have their own names
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
    """Returns a shape with at least `least` dimensions. Some are long, and some are empty."""
    if drawn.random() < 0.04:
        return (drawn.randint(1000, 10_000),)
    lowest = 0 if drawn.random() < 0.1 else 1
    return tuple(drawn.randint(lowest, 6) for _ in range(drawn.randint(least, 3)))
