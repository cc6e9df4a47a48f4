"""Backend.monitored_barrier. Before 2.14, PyTorch's own function accepts gloo only."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from support.rank import Raised, caught, new_group


def monitored_barrier(group, milliseconds: int, *, all_ranks: bool = False) -> None:
    timeout = timedelta(milliseconds=milliseconds)
    group.monitored_barrier(timeout, all_ranks)


def _all_come() -> None:
    for all_ranks in (False, True):
        monitored_barrier(dist.group.WORLD, 20_000, all_ranks=all_ranks)
    dist.barrier(device_ids=[0])
    dist.all_reduce(torch.ones(3))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_all_ranks_come(pools, size: int):
    pools(size).run(_all_come)


def _some_do_not(absent: list[int], all_ranks: bool) -> Raised | None:
    group = new_group(20)
    dist.barrier(group)
    error = None
    if dist.get_rank() in absent:
        time.sleep(2)
    else:
        error = caught(monitored_barrier, group, 1000, all_ranks=all_ranks)
    dist.destroy_process_group(group)
    dist.barrier()
    return error


@pytest.mark.parametrize(("size", "absent"), [(2, [1]), (4, [1, 3]), (4, [2])])
@pytest.mark.parametrize("all_ranks", [False, True])
def test_ranks_that_do_not_come_are_named(pools, size: int, absent: list[int], all_ranks: bool):
    many = all_ranks and len(absent) > 1
    names = f"Ranks {', '.join(map(str, absent))}" if many else f"Rank {absent[0]}"
    for rank, error in enumerate(pools(size).run(_some_do_not, absent, all_ranks)):
        if rank in absent:
            continue
        assert error and "RuntimeError" in error.kinds, error
        assert f"{names} failed to pass monitoredBarrier in 1000 ms" in error.text, error
        # The list is always complete.
        assert all(f"rank {r} (" in error.text for r in absent), error
        if rank > 0:
            assert f"Rank {rank} successfully reached monitoredBarrier" in error.text, error
        assert 0.9 < error.after < 2, error


def _no_time() -> Raised | None:
    return caught(monitored_barrier, dist.group.WORLD, 0)


def test_no_time_at_all(pools):
    for rank, error in enumerate(pools(2).run(_no_time)):
        assert error and f"Rank {rank} timed out in monitoredBarrier" in error.text, error
