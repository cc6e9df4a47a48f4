"""The operations that collectives.py times: their tensors, one call, and whether it was right.

`elements` is the length of the longest tensor of a rank, a multiple of the number of ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist


def pattern(elements: int) -> torch.Tensor:
    """Small integers: sums of them are exact in fp32, in any order."""
    return torch.arange(elements, dtype=torch.int32).remainder_(1013).float()


@dataclass
class Operation:
    """One rank's tensors; a subclass per operation."""

    elements: int
    rank: int
    world: int

    # Bytes that leave every rank, as a share of what an allreduce of the longest tensor sends.
    wire = 0.5
    # By how much we want to be faster than the baseline.
    target = 1.0

    def __post_init__(self) -> None:
        self.input = torch.empty(self.elements)
        self.output = self.input

    @property
    def part(self) -> slice:
        """Of the longest tensor, what belongs to this rank."""
        count = self.elements // self.world
        return slice(self.rank * count, (self.rank + 1) * count)

    def run(self, group: dist.ProcessGroup) -> None:
        raise NotImplementedError

    def expected(self) -> torch.Tensor:
        """The output, if rank r's input is pattern() times r + 1."""
        raise NotImplementedError

    def check(self, group: dist.ProcessGroup) -> None:
        self.input.copy_(pattern(len(self.input)) * (self.rank + 1))
        self.run(group)
        wrong = (self.output != self.expected()).nonzero()
        if len(wrong):
            raise SystemExit(
                f"rank {self.rank}: {type(self).__name__} of {self.elements} elements is wrong at "
                f"{len(wrong)} of them, first at {int(wrong[0])}"
            )


class AllReduce(Operation):
    wire = 1.0

    @property
    def target(self) -> float:  # type: ignore[override]
        # Large messages are bound by the kernel's loopback, for the baseline and for us.
        return 1.5 if self.elements * 4 < 16 << 20 else 0.95

    def run(self, group: dist.ProcessGroup) -> None:
        dist.all_reduce(self.input, group=group)

    def expected(self) -> torch.Tensor:
        return pattern(self.elements) * (self.world * (self.world + 1) // 2)


class ReduceScatter(Operation):
    def __post_init__(self) -> None:
        super().__post_init__()
        self.output = torch.empty(self.elements // self.world)

    def run(self, group: dist.ProcessGroup) -> None:
        dist.reduce_scatter_tensor(self.output, self.input, group=group)

    def expected(self) -> torch.Tensor:
        return pattern(self.elements)[self.part] * (self.world * (self.world + 1) // 2)


class AllGather(Operation):
    def __post_init__(self) -> None:
        self.input = torch.empty(self.elements // self.world)
        self.output = torch.empty(self.elements)

    def run(self, group: dist.ProcessGroup) -> None:
        dist.all_gather_into_tensor(self.output, self.input, group=group)

    def expected(self) -> torch.Tensor:
        mine = pattern(self.elements // self.world)
        return torch.cat([mine * (rank + 1) for rank in range(self.world)])


class AllToAll(Operation):
    def __post_init__(self) -> None:
        super().__post_init__()
        self.output = torch.empty(self.elements)

    def run(self, group: dist.ProcessGroup) -> None:
        dist.all_to_all_single(self.output, self.input, group=group)

    def expected(self) -> torch.Tensor:
        mine = pattern(self.elements)[self.part]
        return torch.cat([mine * (rank + 1) for rank in range(self.world)])


OPERATIONS = {
    "all_reduce": AllReduce,
    "reduce_scatter": ReduceScatter,
    "all_gather": AllGather,
    "all_to_all": AllToAll,
}
