"""Groups split from a group, as PyTorch does for backends that support it. Before 2.15,
torch.distributed.split_group needs an accelerator, so the tests call the ProcessGroup."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from support.rank import caught

import torch_ringdist


def _split(parts: list[list[int]]) -> tuple[int, int, float] | None:
    world = dist.group.WORLD
    mine = next((part for part in parts if dist.get_rank() in part), None)
    if mine is None:
        return None
    group = world.split_group(mine, timeout=timedelta(seconds=20))
    total = torch.full((1000,), float(dist.get_rank() + 1))
    group.allreduce([total]).wait()
    # The parent continues and is not affected.
    everyone = torch.ones(10)
    if sum(map(len, parts)) == world.size():
        dist.all_reduce(everyone)
        assert bool((everyone == world.size()).all()), everyone
    found = group.rank(), group.size(), float(total[0])
    group.shutdown()
    return found


@pytest.mark.parametrize("parts", [[[0, 1], [2]], [[0, 2], [1]], [[0, 1, 2]]])
@pytest.mark.check
def test_parts_work_by_themselves(pools, parts: list[list[int]]):
    found = pools(3).run(_split, parts)
    for part in parts:
        for at, rank in enumerate(part):
            assert found[rank] == (at, len(part), sum(r + 1 for r in part)), (rank, found)


def _bad_ranks() -> str:
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.supports_splitting
    return str(caught(dist.group.WORLD.split_group, [0, 7]))


def test_ranks_that_the_group_does_not_have(pools):
    for error in pools(3).run(_bad_ranks):
        assert "rank 7" in error, error


def _with_codec() -> int:
    """Computes the default for sums anew, because it depends on the number of ranks."""
    options = torch_ringdist.Options(codec="topk:0.1")
    parent = dist.new_group(backend="ringdist", pg_options=options)
    group = parent.split_group([0, 1], timeout=timedelta(seconds=20))
    if dist.get_rank() == 2:
        return 0
    given = torch.randn(100_000)
    group.allreduce([given]).wait()
    kept = int(given.count_nonzero())
    group.shutdown()
    return kept


def test_the_codec_of_the_parent(pools):
    kept = pools(3).run(_with_codec)
    # At most a tenth of each rank's elements remains.
    assert kept[0] == kept[1] and 0 < kept[0] < 25_000, kept


def _beside_a_bound_device() -> float:
    """Sets a bound device like init_process_group(device_id=). Then new_group() also calls ranks
    outside."""
    dist.group.WORLD.bound_device_id = torch.device("cuda", 0)
    try:
        group = dist.new_group([0, 2], backend="ringdist")
    finally:
        dist.group.WORLD.bound_device_id = None
    total = torch.tensor([float(dist.get_rank())])
    if dist.get_rank() != 1:
        dist.all_reduce(total, group=group)
        dist.destroy_process_group(group)
    return float(total)


def test_new_groups_of_a_group_with_a_bound_device(pools):
    assert pools(3).run(_beside_a_bound_device) == [2.0, 1.0, 2.0]
