"""Runs every operation once over ringdist and checks its result: a quick test of a build.

    torchrun --nproc-per-node=2 tools/smoke.py

It needs only torch and torch_ringdist, and two ranks or more. check_torch_versions.py runs it on
each version of torch. It exits with 1 at the first wrong result and names the operation.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import (
    AllgatherOptions,
    ReduceScatterOptions,
    _coalescing_manager,
)

CPU = torch.device("cpu")
COUNT = 1000


class Smoke:
    """Tests of operations, one per method. Rank r contributes the value r + 1."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.world = dist.group.WORLD
        self.total = self.size * (self.size + 1) // 2

    def mine(self, count: int = COUNT) -> torch.Tensor:
        return torch.full((count,), self.rank + 1.0)

    def blanks(self, count: int = COUNT) -> list[torch.Tensor]:
        return [torch.zeros(count) for _ in range(self.size)]

    def is_total(self, tensor: torch.Tensor) -> None:
        expect(tensor, torch.full_like(tensor, self.total))

    def are_by_rank(self, parts: list[torch.Tensor]) -> None:
        for rank, part in enumerate(parts):
            expect(part, torch.full_like(part, rank + 1))

    def all_reduce(self) -> None:
        dist.all_reduce(tensor := self.mine())
        self.is_total(tensor)
        dist.all_reduce(tensor := self.mine(), dist.ReduceOp.AVG)
        expect(tensor, torch.full_like(tensor, self.total / self.size))

    def all_reduce_async(self) -> None:
        work = dist.all_reduce(tensor := self.mine(), async_op=True)
        future = work.get_future()
        work.wait(timedelta(seconds=20))
        expect(future.wait()[0], tensor)
        self.is_total(tensor)

    def all_reduce_premultiplied(self) -> None:
        dist.all_reduce(tensor := self.mine(), dist._make_nccl_premul_sum(2.0))
        expect(tensor, torch.full_like(tensor, 2 * self.total))

    def all_reduce_coalesced(self) -> None:
        dist.all_reduce_coalesced(tensors := [self.mine(), self.mine(3)])
        for tensor in tensors:
            self.is_total(tensor)

    def all_reduce_sparse(self) -> None:
        tensor = torch.sparse_coo_tensor([[self.rank, 5]], [1.0, 1.0], (6 + self.size,))
        dist.all_reduce(tensor)
        wanted = torch.zeros(6 + self.size)
        wanted[: self.size] += 1
        wanted[5] += self.size
        expect(tensor.to_dense(), wanted)

    def reduce(self) -> None:
        dist.reduce(tensor := self.mine(), 1)
        expect(tensor, torch.full_like(tensor, self.total if self.rank == 1 else self.rank + 1))

    def broadcast(self) -> None:
        dist.broadcast(tensor := self.mine(), 1)
        expect(tensor, torch.full_like(tensor, 2))

    def all_gather(self) -> None:
        dist.all_gather(parts := self.blanks(), self.mine())
        self.are_by_rank(parts)

    def all_gather_uneven(self) -> None:
        parts = [torch.zeros(3 * rank) for rank in range(self.size)]
        dist.all_gather(parts, self.mine(3 * self.rank))
        self.are_by_rank(parts)

    def all_gather_coalesced(self) -> None:
        lists = [[torch.zeros(5), torch.zeros(2)] for _ in range(self.size)]
        backend = self.world._get_backend(CPU)
        backend.allgather_coalesced(lists, [self.mine(5), self.mine(2)], AllgatherOptions()).wait()
        for i in range(2):
            self.are_by_rank([parts[i] for parts in lists])

    def all_gather_into_tensor(self) -> None:
        dist.all_gather_into_tensor(whole := torch.zeros(self.size * COUNT), self.mine())
        self.are_by_rank(list(whole.split(COUNT)))

    def all_gather_into_tensor_coalesced(self) -> None:
        wholes = [torch.zeros(self.size * count) for count in (5, 2)]
        given = [self.mine(5), self.mine(2)]
        self.world.allgather_into_tensor_coalesced(wholes, given, AllgatherOptions()).wait()
        for whole, count in zip(wholes, (5, 2), strict=True):
            self.are_by_rank(list(whole.split(count)))

    def gather(self) -> None:
        parts = self.blanks() if self.rank == 1 else None
        dist.gather(self.mine(), parts, 1)
        self.are_by_rank(parts or [])

    def gather_single(self) -> None:
        if not hasattr(dist, "gather_single"):  # torch 2.14
            return
        whole = torch.zeros(self.size * COUNT) if self.rank == 1 else None
        dist.gather_single(self.mine(), whole, 1)
        self.are_by_rank(list(whole.split(COUNT)) if self.rank == 1 else [])

    def scatter(self) -> None:
        parts = [torch.full((COUNT,), rank + 1.0) for rank in range(self.size)]
        dist.scatter(tensor := torch.zeros(COUNT), parts if self.rank == 1 else None, 1)
        expect(tensor, self.mine())

    def reduce_scatter(self) -> None:
        given = [self.mine(3 * rank) for rank in range(self.size)]
        dist.reduce_scatter(tensor := torch.zeros(3 * self.rank), given)
        self.is_total(tensor)

    def reduce_scatter_tensor(self) -> None:
        dist.reduce_scatter_tensor(tensor := torch.zeros(COUNT), self.mine(self.size * COUNT))
        self.is_total(tensor)

    def reduce_scatter_tensor_coalesced(self) -> None:
        got = [torch.zeros(5), torch.zeros(2)]
        given = [self.mine(self.size * len(tensor)) for tensor in got]
        self.world.reduce_scatter_tensor_coalesced(got, given, ReduceScatterOptions()).wait()
        for tensor in got:
            self.is_total(tensor)

    def all_to_all(self) -> None:
        dist.all_to_all(parts := self.blanks(), [self.mine() for _ in range(self.size)])
        self.are_by_rank(parts)

    def all_to_all_single(self) -> None:
        dist.all_to_all_single(whole := torch.zeros(self.size * 7), self.mine(self.size * 7))
        self.are_by_rank(list(whole.split(7)))

    def all_to_all_single_uneven(self) -> None:
        """Each rank sends r rows to rank r."""
        sent, got = list(range(self.size)), [self.rank] * self.size
        whole = torch.zeros(sum(got))
        dist.all_to_all_single(whole, self.mine(sum(sent)), got, sent)
        self.are_by_rank(list(whole.split(got)))

    def send_and_recv(self) -> None:
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        for source in (before, None):
            sending = dist.isend(self.mine(), after, tag=3)
            got = torch.zeros(COUNT)
            if dist.recv(got, source, tag=3) != before:
                raise AssertionError("received from another rank")
            sending.wait()
            expect(got, torch.full_like(got, before + 1))

    def batch_isend_irecv(self) -> None:
        others = [rank for rank in range(self.size) if rank != self.rank]
        got = {rank: torch.zeros(COUNT) for rank in others}
        batch = [dist.P2POp(dist.irecv, got[rank], rank) for rank in others]
        batch += [dist.P2POp(dist.isend, self.mine(), rank) for rank in others]
        for work in dist.batch_isend_irecv(batch):
            work.wait()
        for rank in others:
            expect(got[rank], torch.full((COUNT,), rank + 1.0))

    def coalescing_manager(self) -> None:
        tensors = [self.mine(count) for count in (1, 10, 100)]
        with _coalescing_manager():
            for tensor in tensors:
                dist.all_reduce(tensor)
        for tensor in tensors:
            self.is_total(tensor)

    def objects(self) -> None:
        everyone = [None] * self.size
        dist.all_gather_object(everyone, {"rank": self.rank})
        if everyone != [{"rank": rank} for rank in range(self.size)]:
            raise AssertionError(f"gathered {everyone}")

    def barrier(self) -> None:
        dist.barrier()

    def monitored_barrier(self) -> None:
        # torch.distributed.monitored_barrier takes no other name than gloo before torch 2.14.
        self.world.monitored_barrier(timedelta(seconds=20), True)

    def new_group(self) -> None:
        group = dist.new_group([1])
        if self.rank == 1:
            dist.all_reduce(torch.ones(3), group=group)
            dist.destroy_process_group(group)


def expect(actual: torch.Tensor, expected: torch.Tensor) -> None:
    if not torch.equal(actual, expected):
        raise AssertionError(f"{actual} is not {expected}")


def operations() -> list[str]:
    """The names of the operations, in the order of the class."""
    helpers = ("mine", "blanks", "is_total", "are_by_rank")
    return [name for name in vars(Smoke) if not name.startswith("_") and name not in helpers]


def main() -> int:
    if "RANK" not in os.environ or os.environ.get("WORLD_SIZE") == "1":
        print(f"launch me with: torchrun --nproc-per-node=2 {sys.argv[0]}", file=sys.stderr)
        return 2
    warnings.simplefilter(
        "ignore", FutureWarning
    )  # old names are used because all versions have them
    dist.init_process_group("ringdist", timeout=timedelta(seconds=40))
    smoke = Smoke()
    for name in operations():
        run: Callable[[], None] = getattr(smoke, name)
        try:
            run()
        except Exception as error:
            print(f"rank {smoke.rank}: {name}: {type(error).__name__}: {error}", file=sys.stderr)
            os._exit(1)  # other ranks wait for this one until torchrun ends them
    dist.destroy_process_group()
    if smoke.rank == 0:
        print(
            f"{len(operations())} operations work on {smoke.size} ranks, torch {torch.__version__}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
