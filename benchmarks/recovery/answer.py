"""Reports of surviving ranks, and sums that reveal which ranks took part."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from benchmarks.recovery.plan import LARGEST, SIZE

_DISTINCT = 1000  # number of values; 16 times the largest is exact in fp32


@dataclass(frozen=True)
class Lost:
    rank: int  # rank in the first group, like all ranks here
    cause: str
    pid: int


@dataclass(frozen=True)
class Shrink:
    """One call of shrink()."""

    begun_from: int  # generation of the abandoned group
    generation: int
    lost: tuple[Lost, ...]
    stayed: tuple[int, ...]
    first_unfinished: int
    done: int = field(compare=False)  # all_reduces that this rank had finished in that group
    error: str = field(compare=False)
    error_at: float = field(compare=False)  # time.monotonic(), which is common to all processes
    shrunk_at: float = field(compare=False)


@dataclass(frozen=True)
class Answer:
    rank: int
    members: tuple[int, ...]  # members of the last group, by new rank
    new_rank: int
    recovered_at: float  # end of the first all_reduce of the last group
    bits: str = ""  # hash of results that must be equal on all ranks
    shrinks: tuple[Shrink, ...] = ()


class Sums:
    """Makes exact sums that reveal the participants. Each rank contributes a power of two times a
    pattern."""

    def __init__(self, rank: int) -> None:
        self._pattern = torch.arange(LARGEST, dtype=torch.float32) % _DISTINCT + 1
        self._mine = self._pattern * (1 << rank)

    def mine(self, count: int) -> torch.Tensor:
        return self._mine[:count].clone()

    def members(self, total: torch.Tensor) -> tuple[int, ...]:
        """Returns the participants of a sum, provided that it is right."""
        whole = int(total[0] / self._pattern[0])
        return tuple(rank for rank in range(SIZE) if whole >> rank & 1)

    def wrong(self, total: torch.Tensor, members: Sequence[int]) -> str:
        """Returns the error in the sum over these ranks; "" if it is right."""
        wanted = self._pattern[: total.numel()] * sum(1 << rank for rank in members)
        if torch.equal(total, wanted):
            return ""
        at = int((total != wanted).nonzero()[0])
        return (
            f"element {at} of {total.numel()} of the sum over the ranks {list(members)} is "
            f"{total[at].item()!r}, expected {wanted[at].item()!r}"
        )


def digest(*results: torch.Tensor) -> str:
    hashes = hashlib.sha256()
    for result in results:
        hashes.update(result.numpy().tobytes())
    return hashes.hexdigest()[:16]
