"""Groups split from a group with CUDA tensors on the NCCL path. Its communicators are split,
too."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from support.gpu import my_device, needs_gpu, needs_nccl_of
from support.rank import new_group

import torch_ringdist

pytestmark = needs_gpu
COUNT = 1 << 20


def _sum(group: dist.ProcessGroup) -> float:
    tensor = torch.full((COUNT,), float(dist.get_rank()), device=my_device())
    group.allreduce([tensor]).wait()
    torch.cuda.synchronize()
    assert tensor.eq(tensor[0]).all(), tensor
    return float(tensor[0])


def _split(parts: list[list[int]], ends: str) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    parent = new_group(pg_options=torch_ringdist.Options(device_path="nccl"))
    everyone = sum(range(size))
    assert _sum(parent) == everyone
    mine = next((part for part in parts if rank in part), None)
    # A rank of no part names another part, as torch.distributed.split_group does.
    group = parent.split_group(mine or parts[0], timeout=timedelta(seconds=60))
    assert (group is None) == (mine is None)
    for _ in range(3):
        if group is not None and mine is not None:
            assert _sum(group) == sum(mine)
        assert _sum(parent) == everyone
    dist.barrier()  # an abort would end operations of others
    if ends == "parent":
        parent._get_backend(my_device()).abort()
    elif group is not None:
        group.shutdown()
    if ends == "parent" and group is not None and mine is not None:
        assert _sum(group) == sum(mine), "it ended with its parent"
        group.shutdown()
    elif ends == "part":
        assert _sum(parent) == everyone, "it ended with its part"
    dist.destroy_process_group(parent)


CASES = [(1, [[0]]), (2, [[0, 1]]), (2, [[1]]), (4, [[0, 2], [1, 3]]), (4, [[1, 2]])]


@pytest.mark.parametrize("ends", ["parent", "part"])
@pytest.mark.parametrize(("size", "parts"), CASES)
def test_parts_and_their_parent_go_on_by_themselves(
    fresh_pool, size: int, parts: list[list[int]], ends: str
):
    needs_nccl_of(size)
    fresh_pool(size).run(_split, parts, ends)
