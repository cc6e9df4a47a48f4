"""Ranks call different operations, or do not come. Every rank gets an error that names both
sides."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from support.rank import (
    Raised,
    Ranks,
    a_new_group_works,
    caught,
    init,
    new_group,
    new_store,
    same_bits,
)
from support.store import wait_for

import torch_ringdist

MAX, SUM = dist.ReduceOp.MAX, dist.ReduceOp.SUM


def reduce_all(count: int = 1000, dtype: torch.dtype = torch.float32, op=SUM):
    return lambda group: dist.all_reduce(torch.ones(count, dtype=dtype), op, group=group)


def broadcast(root: int, count: int = 1000):
    return lambda group: dist.broadcast(torch.ones(count), group=group, group_src=root)


def gather(count: int):
    def call(group):
        given = torch.ones(count)
        dist.all_gather_into_tensor(given.new_empty(count * group.size()), given, group=group)

    return call


def scatter(count: int):
    def call(group):
        dist.reduce_scatter_tensor(torch.ones(count), torch.ones(count * group.size()), group=group)

    return call


# The call of all ranks but one, the call of that one, and the words that must name the two sides.
CASES = {
    "size": (reduce_all(1000), reduce_all(1001), "1000 elements", "1001 elements"),
    "size by far": (reduce_all(3_000_000), reduce_all(1), "3000000 elements", "1 element,"),
    "empty": (reduce_all(0), reduce_all(500_000), "0 elements", "500000 elements"),
    "dtype": (reduce_all(), reduce_all(dtype=torch.int32), "float32", "int32"),
    "op": (reduce_all(), reduce_all(op=MAX), "SUM", "MAX"),
    "collective": (reduce_all(), broadcast(0), "all_reduce", "broadcast"),
    "barrier": (reduce_all(), lambda group: dist.barrier(group=group), "all_reduce", "barrier"),
    "root": (broadcast(0), broadcast(1), "root 0", "root 1"),
    "size of a broadcast": (broadcast(0), broadcast(0, 10**6), "1000 elem", "1000000 elem"),
    "size of a gather": (gather(100), gather(70_000), "100 elements", "70000 elements"),
    "size of a scatter": (scatter(100_000), scatter(99), "100000 elements", "99 elements"),
}


def _first_error(call, group) -> Raised:
    """Returns this rank's error: of the call itself, or of the next if its part is already done.

    An earlier op may get the error as well, if this rank had not finished it when others had.
    """
    calls = (dist.barrier, lambda group: call(group), dist.barrier)
    error = next(filter(None, (caught(each, group) for each in calls)), None)
    assert error is not None, "neither the call nor the next one raised"
    return error


def _goes_on(group) -> Raised:
    """Returns the error of a failed group when it is used again. A new group must work then."""
    again = caught(dist.all_reduce, torch.ones(3), group=group)
    dist.destroy_process_group(group)
    a_new_group_works()
    dist.all_reduce(torch.ones(5))
    assert again is not None, "a failed group works again"
    return again


def _disagree(case: str, odd: int) -> tuple[Raised, Raised]:
    group = new_group(seconds=20)
    most, one, *_ = CASES[case]
    error = _first_error(one if dist.get_rank() == odd else most, group)
    return error, _goes_on(group)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("size", "odd"), [(2, 1), (4, 0), (4, 2)])
def test_ranks_call_different_things(pools, case: str, size: int, odd: int):
    *_, one_side, other_side = CASES[case]
    for rank, (error, again) in enumerate(pools(size).run(_disagree, case, odd)):
        where = f"rank {rank}: {error}"
        assert "DistBackendError" in error.kinds, where
        assert "ranks disagree on op" in error.text, where
        assert one_side in error.text and other_side in error.text, where
        assert f"rank {odd} " in error.text, where
        assert error.after < 10, where  # the group has 20 s
        # The first cause stays.
        assert "has failed" in again.text and one_side in again.text, again
        assert again.after < 10, again


def _one_does_not_come(seconds: float) -> tuple[Raised, Raised]:
    """Rank 1 comes when the others have their errors."""
    group, store, rank = new_group(seconds), new_store(), dist.get_rank()
    dist.barrier(group=group)
    if rank == 1:
        wait_for(store, *(f"error of {one}" for one in range(group.size()) if one != 1))
        time.sleep(0.5)  # by then their timeout has arrived
    error = caught(dist.all_reduce, torch.ones(100), group=group)
    assert error is not None, "an op without rank 1 succeeded"
    store.set(f"error of {rank}", "")
    return error, _goes_on(group)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.check
def test_a_rank_that_does_not_come_is_named(pools, size: int):
    found = pools(size).run(_one_does_not_come, 4.0)
    for rank, (error, again) in enumerate(found):
        where = f"rank {rank}: {error}"
        assert "DistBackendError" in error.kinds, where
        assert "imed out" in error.text and "no sign" in error.text, where
        assert "by rank 1 " in error.text, where
        # The late rank gets the timeout of the others at once.
        assert error.after < (2 if rank == 1 else 10), where
        assert "imed out" in again.text and "rank 1 " in again.text, again
    # A rank that called later than others gets their timeout after less time.
    assert max(error.after for error, _ in found) > 3.9, found


def _joins_alone(seconds: float) -> Raised | None:
    """Returns the error, which is `after` the beginning of init()."""
    if Ranks.rank == 1:
        return None
    begin = time.monotonic()
    init(timeout=timedelta(seconds=seconds))
    error = caught(dist.all_reduce, torch.ones(100))
    return error and replace(error, after=error.at - begin)


def test_a_rank_that_never_joins_is_named(fresh_pool):
    pool = fresh_pool(3, init=False)
    errors = pool.run(_joins_alone, 5.0)
    for rank, error in enumerate(errors):
        if rank == 1:
            continue
        assert error is not None and "DistBackendError" in error.kinds, error
        assert "imed out" in error.text and "rank 1" in error.text, error
        assert error.after < 20, error  # the default is 40 s
    # A rank that began later than others may get their error after less time.
    assert max(error.after for error in errors if error) > 4.5, errors


def _other_environment() -> Raised | None:
    os.environ["RINGDIST_ALGORITHM"] = ["ring", "direct"][Ranks.rank]
    return caught(init) or caught(dist.all_reduce, torch.ones(100))


def test_options_of_the_environment_that_differ(fresh_pool):
    for error in fresh_pool(2, init=False).run(_other_environment):
        assert error is not None and "DistBackendError" in error.kinds, error
        assert 'algorithm="ring"' in error.text and 'algorithm="direct"' in error.text, error
        assert error.after < 20, error  # the group has 40 s


def _other_options() -> tuple[Raised | None, Raised]:
    size = 4096 * (1 + dist.get_rank())
    group = new_group(pg_options=torch_ringdist.Options(segment_bytes=size))
    error = caught(dist.all_reduce, torch.ones(100), group=group)
    return error, _goes_on(group)


def test_options_of_a_call_that_differ(pools):
    for error, _ in pools(2).run(_other_options):
        assert error is not None and "DistBackendError" in error.kinds, error
        assert "segment_bytes=4096" in error.text and "segment_bytes=8192" in error.text, error


def _inputs_stay() -> None:
    rank = dist.get_rank()
    group = new_group(seconds=20)
    tensor = torch.full((1000 + rank,), 3.0)
    error = _first_error(lambda g: dist.all_reduce(tensor, group=g), group)
    # A call after the failure never began.
    if "unchanged" in error.text or "cannot be used" in error.text:
        same_bits(tensor, torch.full((1000 + rank,), 3.0), "a tensor said to be unchanged")
    else:
        assert "partly overwritten" in error.text, error
    _goes_on(group)


def test_the_error_says_whether_the_tensor_was_written(pools):
    pools(3).run(_inputs_stay)
