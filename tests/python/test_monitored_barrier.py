"""Backend.monitored_barrier. Before 2.14, PyTorch's own function accepts gloo only."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from support.rank import Raised, caught, new_group, new_store
from support.store import wait_for

LIMIT = 3000  # milliseconds


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
    """The absent ranks wait until the others have their errors."""
    group, store, rank = new_group(20), new_store(), dist.get_rank()
    dist.barrier(group)
    error = None
    if rank in absent:
        others = set(range(dist.get_world_size())) - set(absent)
        wait_for(store, *(f"error of {one}" for one in others))
    else:
        error = caught(monitored_barrier, group, LIMIT, all_ranks=all_ranks)
        store.set(f"error of {rank}", "")
    dist.destroy_process_group(group)
    dist.barrier()
    return error


@pytest.mark.parametrize(("size", "absent"), [(2, [1]), (4, [1, 3]), (4, [2])])
@pytest.mark.parametrize("all_ranks", [False, True])
def test_ranks_that_do_not_come_are_named(pools, size: int, absent: list[int], all_ranks: bool):
    many = all_ranks and len(absent) > 1
    names = f"Ranks {', '.join(map(str, absent))}" if many else f"Rank {absent[0]}"
    errors = pools(size).run(_some_do_not, absent, all_ranks)
    for rank, error in enumerate(errors):
        if rank in absent:
            continue
        assert error and "RuntimeError" in error.kinds, error
        assert f"{names} failed to pass monitoredBarrier in {LIMIT} ms" in error.text, error
        # The list is always complete.
        assert all(f"rank {r} (" in error.text for r in absent), error
        if rank > 0:
            assert f"Rank {rank} successfully reached monitoredBarrier" in error.text, error
        assert error.after < 15, error  # the group has 20 s
    # A rank that called later than others gets their error after less time.
    assert max(error.after for error in errors if error) > 0.9 * LIMIT / 1000


def _no_time() -> Raised | None:
    return caught(monitored_barrier, dist.group.WORLD, 0)


def test_no_time_at_all(pools):
    for rank, error in enumerate(pools(2).run(_no_time)):
        assert error and f"Rank {rank} timed out in monitoredBarrier" in error.text, error
