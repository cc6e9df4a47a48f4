"""A barrier ends after all earlier collectives of its group, on every rank."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from support.rank import Raised, caught, in_threads, new_group, oracle, same_bits
from test_monitored_barrier import monitored_barrier
from torch.distributed.distributed_c10d import _coalescing_manager

CPU = torch.device("cpu")
COUNT = 1 << 20


# Ways to a barrier of a group. Each returns when the barrier has ended.
BARRIERS: dict[str, Callable[[Any], Any]] = {
    "blocking": lambda group: dist.barrier(group),
    "waited for": lambda group: dist.barrier(group, async_op=True).wait(),
    "future": lambda group: dist.barrier(group, async_op=True).get_future().wait(),
    "monitored": lambda group: monitored_barrier(group, 30_000),
}


def _plain(group: Any, rank: int) -> tuple[torch.Tensor, list[Any]]:
    tensor = torch.full((COUNT,), float(rank))
    return tensor, [dist.all_reduce(tensor, group=group, async_op=True)]


def _transposed(group: Any, rank: int) -> tuple[torch.Tensor, list[Any]]:
    tensor = torch.full((1024, COUNT // 1024), float(rank)).t()
    return tensor, [dist.all_reduce(tensor, group=group, async_op=True)]


def _sparse(group: Any, rank: int) -> tuple[torch.Tensor, list[Any]]:
    tensor = torch.full((50_000,), float(rank + 1)).to_sparse()
    return tensor, [dist.all_reduce(tensor, group=group, async_op=True)]


def _coalesced(group: Any, rank: int) -> tuple[torch.Tensor, list[Any]]:
    tensor = torch.full((COUNT,), float(rank))
    halves = tensor.chunk(2)
    with _coalescing_manager(group, async_ops=True) as manager:
        for half in halves:
            dist.all_reduce(half, group=group)
    return tensor, manager.works


# Each starts operations, after which the tensor is the sum of the ranks.
EARLIER = {
    "contiguous": _plain,
    "transposed": _transposed,
    "sparse": _sparse,
    "coalesced": _coalesced,
}


def _waits(which: str, how: str) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    group = new_group()
    extra = size if which == "sparse" else 0
    for _ in range(3):
        if rank == 1:
            time.sleep(0.1)
        tensor, works = EARLIER[which](group, rank)
        BARRIERS[how](group)
        ended = tensor.clone()
        for work in works:
            assert work.is_completed() or work.is_completed(), "not complete after the barrier"
            work.wait()
        expected = torch.full_like(ended.to_dense(), size * (size - 1) / 2 + extra)
        same_bits(ended.to_dense().contiguous(), expected.contiguous(), f"{which}, {how}")
    dist.destroy_process_group(group)


@pytest.mark.parametrize("how", BARRIERS)
@pytest.mark.parametrize("which", EARLIER)
def test_results_are_there_after_a_barrier(pools, which: str, how: str):
    pools(3).run(_waits, which, how)


def _groups() -> None:
    rank = dist.get_rank()
    pair = new_group(ranks=[0, 2])
    if rank in (0, 2):
        tensor = torch.full((COUNT,), float(rank))
        if rank == 2:
            time.sleep(0.2)
        dist.all_reduce(tensor, group=pair, async_op=True)
        dist.barrier(pair)
        same_bits(tensor, torch.full((COUNT,), 2.0), "in a group of some ranks")
        dist.destroy_process_group(pair)
    # Operations of another group do not matter.
    other = new_group()
    pending = [dist.all_reduce(torch.ones(5), group=other, async_op=True)] if rank else []
    dist.barrier()
    if rank == 0:
        pending.append(dist.all_reduce(torch.ones(5), group=other, async_op=True))
    pending[0].wait()
    dist.destroy_process_group(other)


@pytest.mark.check
def test_only_its_own_group_counts(pools):
    pools(3).run(_groups)


def _receive_into_a_view() -> None:
    rank = dist.get_rank()
    given = torch.arange(6.0).reshape(2, 3)
    target = torch.zeros(3, 2)
    if rank == 0:
        work = dist.irecv(target.t(), src=1)  # the result has to be copied back
    dist.barrier()
    if rank == 1:
        dist.send(given, 0)
    if rank == 0:
        work.wait()
        same_bits(target.t().contiguous(), given, "received")


def test_a_receive_that_nobody_serves_yet_holds_up_none(pools):
    pools(2).run(_receive_into_a_view)


def _everywhere(path: str) -> None:
    """Gives rank 1 a tensor in a file, which rank 0 reads after the barrier."""
    rank, shape = dist.get_rank(), (1024, 2048)
    if rank == 1:
        ours = np.memmap(path, dtype=np.float32, mode="w+", shape=shape)
        tensor = torch.from_numpy(ours)
    else:
        tensor = torch.empty(shape)
    tensor.fill_(1.0)
    dist.barrier()
    dist.all_reduce(tensor, async_op=True)
    dist.barrier()
    if rank == 0:
        theirs = np.memmap(path, dtype=np.float32, mode="r", shape=shape)
        wrong = int((theirs != 2).sum())
        assert wrong == 0, f"{wrong} elements of rank 1 were not there after rank 0's barrier"
    dist.barrier()


def test_what_other_ranks_get_is_there_too(pools, tmp_path: Path):
    for _ in range(3):
        pools(2).run(_everywhere, str(tmp_path / "tensor"))


def _order() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    sums = [torch.full((COUNT,), float(rank)) for _ in range(3)]
    barriers, works = [], []
    for tensor in sums:
        works.append(dist.all_reduce(tensor, async_op=True))
        barriers.append(dist.barrier(async_op=True))
    works[-1].wait()  # not delayed by the barriers before it
    for i in reversed(range(3)):
        barriers[i].wait()
        total = torch.full((COUNT,), size * (size - 1) / 2)
        for tensor in sums[: i + 1]:
            same_bits(tensor, total, f"after barrier {i}")
    # A barrier in a coalescing region.
    tensor = torch.full((COUNT,), float(rank))
    dist.group.WORLD._start_coalescing(CPU)
    dist.all_reduce(tensor, async_op=True)
    barrier = dist.barrier(async_op=True)
    dist.group.WORLD._end_coalescing(CPU)
    barrier.wait()
    same_bits(tensor, torch.full((COUNT,), size * (size - 1) / 2), "in a region")


def test_several_under_way(pools):
    pools(3).run(_order)


def _from_callbacks() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    tensor = torch.full((100_000,), float(rank))
    work = dist.all_reduce(tensor, async_op=True)

    def then(_: Any) -> bool:
        dist.barrier()
        return bool((tensor == size * (size - 1) / 2).all())

    assert work.get_future().then(then).wait(), "not the sum in the callback"

    def hammer(group: Any) -> Callable[[], None]:
        def run() -> None:
            for _ in range(50):
                tensor = torch.full((2000,), float(rank))
                dist.all_reduce(tensor, group=group, async_op=True)
                dist.barrier(group)
                total = torch.full((2000,), size * (size - 1) / 2)
                same_bits(tensor, total, "in a thread")

        return run

    groups = [new_group() for _ in range(3)]
    in_threads([hammer(group) for group in groups])
    for group in groups:
        dist.destroy_process_group(group)


def test_in_callbacks_and_threads(pools):
    pools(2).run(_from_callbacks)


def _messages() -> None:
    """Checks that neither gloo nor ringdist waits for sends and receives."""
    rank = dist.get_rank()
    for group in (oracle(), dist.group.WORLD):
        got = torch.zeros(3)
        receive = dist.irecv(got, 1, group=group) if rank == 0 else None
        dist.barrier(group)
        if rank == 1:
            dist.send(torch.ones(3), 0, group=group)
        if receive:
            receive.wait()
            same_bits(got, torch.ones(3), "received after the barrier")


def test_a_receive_does_not_hold_it_up(pools):
    pools(2).run(_messages)


def _fails(how: str) -> Raised | None:
    rank = dist.get_rank()
    group = new_group(30)
    dist.barrier(group)
    error = None
    if rank != 1:
        options = dist.AllreduceOptions()
        options.timeout, options.asyncOp = timedelta(seconds=3), True
        tensor = torch.ones(100, 3).t() if how == "transposed" else torch.ones(100)
        work = group.allreduce([tensor], options)
        error = caught(dist.barrier, group)
        assert caught(work.wait)
    dist.barrier()
    dist.destroy_process_group(group)
    return error


@pytest.mark.parametrize("how", ["contiguous", "transposed"])
def test_it_fails_with_what_an_earlier_op_failed_of(pools, how: str):
    for rank, error in enumerate(pools(3).run(_fails, how)):
        if rank == 1:
            continue
        assert error and "barrier #3" in error.text, error
        assert "for op #2" in error.text and "called by rank 1" in error.text, error
        assert error.after < 25, error  # the group's own limit is 30 s


def _names() -> Raised | None:
    """Delays ranks 0 and 2 by an op that rank 1 does not call."""
    group = new_group(30)
    dist.barrier(group)
    error = None
    if dist.get_rank() != 1:
        dist.all_reduce(torch.ones(5), group=group, async_op=True)
        error = caught(monitored_barrier, group, 3000, all_ranks=True)
    dist.barrier()
    dist.destroy_process_group(group)
    return error


def test_who_waits_for_an_earlier_op_has_come(pools):
    error, _, other = pools(3).run(_names)
    for one in (error, other):
        assert one and "Rank 1 failed to pass monitoredBarrier in 3000 ms" in one.text, one
        assert "#3 (" not in one.text, one
