"""The timed operations: their tensors, one call for each peer, and a check of the result.

`elements` is the length of the longest tensor of a rank, a multiple of the number of ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist


def pattern(elements: int) -> torch.Tensor:
    """Returns small integers. Their sums are exact in fp32 in any order."""
    return torch.arange(elements, dtype=torch.int32).remainder_(1013).float()


@dataclass
class Operation:
    """Tensors of one rank. Each operation is a subclass."""

    elements: int
    rank: int
    world: int

    sized = True  # True if it has tensors

    def __post_init__(self) -> None:
        self.input = torch.ones(self.elements)
        self.output = torch.ones(self.elements)

    @property
    def part(self) -> slice:
        """Slice of the longest tensor that belongs to this rank."""
        count = self.elements // self.world
        return slice(self.rank * count, (self.rank + 1) * count)

    def torch(self, group: dist.ProcessGroup) -> None:
        raise NotImplementedError

    def mpi(self, communicator: Any, mpi: Any) -> None:
        raise NotImplementedError

    def bound(self) -> None:
        """Does the minimal memory work of the operation: reads the input and writes the output."""
        self.output.copy_(self.input)

    def expected(self) -> torch.Tensor:
        """Returns the correct output if the input of rank r is pattern() times r + 1."""
        raise NotImplementedError

    def prepare(self) -> None:
        self.input.copy_(pattern(len(self.input)) * (self.rank + 1))

    def is_right(self) -> bool:
        return torch.equal(self.output, self.expected())


class AllReduce(Operation):
    def __post_init__(self) -> None:
        self.input = self.output = torch.ones(self.elements)

    def torch(self, group: dist.ProcessGroup) -> None:
        dist.all_reduce(self.input, group=group)

    def mpi(self, communicator: Any, mpi: Any) -> None:
        communicator.Allreduce(mpi.IN_PLACE, self.input.numpy())

    def bound(self) -> None:
        self.input.mul_(1.0)

    def expected(self) -> torch.Tensor:
        return pattern(self.elements) * (self.world * (self.world + 1) // 2)


class Broadcast(AllReduce):
    def torch(self, group: dist.ProcessGroup) -> None:
        dist.broadcast(self.input, 0, group=group)

    def mpi(self, communicator: Any, mpi: Any) -> None:
        communicator.Bcast(self.input.numpy(), 0)

    def expected(self) -> torch.Tensor:
        return pattern(self.elements)


class ReduceScatter(Operation):
    def __post_init__(self) -> None:
        super().__post_init__()
        self.output = torch.ones(self.elements // self.world)

    def torch(self, group: dist.ProcessGroup) -> None:
        dist.reduce_scatter_tensor(self.output, self.input, group=group)

    def mpi(self, communicator: Any, mpi: Any) -> None:
        communicator.Reduce_scatter_block(self.input.numpy(), self.output.numpy())

    def bound(self) -> None:
        torch.sum(self.input.view(self.world, -1), 0, out=self.output)

    def expected(self) -> torch.Tensor:
        return pattern(self.elements)[self.part] * (self.world * (self.world + 1) // 2)


class AllGather(Operation):
    def __post_init__(self) -> None:
        super().__post_init__()
        self.input = torch.ones(self.elements // self.world)

    def torch(self, group: dist.ProcessGroup) -> None:
        dist.all_gather_into_tensor(self.output, self.input, group=group)

    def mpi(self, communicator: Any, mpi: Any) -> None:
        communicator.Allgather(self.input.numpy(), self.output.numpy())

    def bound(self) -> None:
        self.output.view(self.world, -1).copy_(self.input)

    def expected(self) -> torch.Tensor:
        mine = pattern(self.elements // self.world)
        return torch.cat([mine * (rank + 1) for rank in range(self.world)])


class AllToAll(Operation):
    def torch(self, group: dist.ProcessGroup) -> None:
        dist.all_to_all_single(self.output, self.input, group=group)

    def mpi(self, communicator: Any, mpi: Any) -> None:
        communicator.Alltoall(self.input.numpy(), self.output.numpy())

    def expected(self) -> torch.Tensor:
        mine = pattern(self.elements)[self.part]
        return torch.cat([mine * (rank + 1) for rank in range(self.world)])


class Reduce(AllReduce):
    """Reduces to rank 0. Results of other ranks are not checked."""

    def torch(self, group: dist.ProcessGroup) -> None:
        dist.reduce(self.input, 0, group=group)

    def mpi(self, communicator: Any, mpi: Any) -> None:
        if self.rank == 0:
            communicator.Reduce(mpi.IN_PLACE, self.input.numpy())
        else:
            communicator.Reduce(self.input.numpy(), None)

    def is_right(self) -> bool:
        return self.rank != 0 or super().is_right()


class Gather(AllGather):
    """Gathers to rank 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.parts = list(self.output.chunk(self.world)) if self.rank == 0 else None

    def torch(self, group: dist.ProcessGroup) -> None:
        dist.gather(self.input, self.parts, 0, group=group)

    def mpi(self, communicator: Any, mpi: Any) -> None:
        communicator.Gather(self.input.numpy(), self.output.numpy() if self.parts else None)

    def bound(self) -> None:
        if self.parts:
            super().bound()

    def is_right(self) -> bool:
        return self.rank != 0 or super().is_right()


class Scatter(Operation):
    """Scatters from rank 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.output = torch.ones(self.elements // self.world)
        self.parts = list(self.input.chunk(self.world)) if self.rank == 0 else None

    def torch(self, group: dist.ProcessGroup) -> None:
        dist.scatter(self.output, self.parts, 0, group=group)

    def mpi(self, communicator: Any, mpi: Any) -> None:
        communicator.Scatter(self.input.numpy() if self.parts else None, self.output.numpy())

    def bound(self) -> None:
        self.output.copy_(self.input[self.part])

    def expected(self) -> torch.Tensor:
        return pattern(self.elements)[self.part]


class Barrier(Operation):
    sized = False

    def torch(self, group: dist.ProcessGroup) -> None:
        dist.barrier(group=group)

    def mpi(self, communicator: Any, mpi: Any) -> None:
        communicator.Barrier()

    def bound(self) -> None:
        pass

    def is_right(self) -> bool:
        return True


OPERATIONS: dict[str, type[Operation]] = {
    "all_reduce": AllReduce,
    "broadcast": Broadcast,
    "all_gather": AllGather,
    "reduce_scatter": ReduceScatter,
    "all_to_all": AllToAll,
    "reduce": Reduce,
    "gather": Gather,
    "scatter": Scatter,
    "barrier": Barrier,
}
