"""Compression in a group of one rank: the same call without any traffic."""

from __future__ import annotations

import torch
import torch.distributed as dist
from support.rank import new_group, same_bits

import torch_ringdist


def _alone() -> None:
    """Checks that nothing is lost without traffic, and that the residuals stay unchanged."""
    rank = dist.get_rank()
    groups = [new_group(ranks=[r]) for r in range(dist.get_world_size())]
    given = torch.randn(3001)
    for codec in ("topk:10", "int4", "onebit"):
        owed = torch.randn(3001)
        for how in (torch_ringdist.all_reduce, torch_ringdist.reduce_scatter_tensor):
            tensor, residual = given.clone(), owed.clone()
            into = () if how is torch_ringdist.all_reduce else (torch.empty(3001),)
            how(*into, tensor, group=groups[rank], codec=codec, residual=residual)
            same_bits(into[0] if into else tensor, given, f"{how.__name__}, {codec}")
            same_bits(residual, owed, f"the residual of {how.__name__}, {codec}")
    dist.destroy_process_group(groups[rank])


def test_a_group_of_one_rank_leaves_the_residual_alone(pools):
    pools(2).run(_alone)
