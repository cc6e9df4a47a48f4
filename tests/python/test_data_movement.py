"""Operations that only move data, and tensors of every layout in all of them."""

from __future__ import annotations

import random

import pytest
import torch
import torch.distributed as dist
from support.rank import same_bits
from support.reference import MOVED_ONLY, REDUCIBLE, any_bits

SIZES = [1, 2, 3, 4, 5]
LARGE = 1_000_003


def _moved(seed: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for name, dtype in {**MOVED_ONLY, **REDUCIBLE}.items():
        for count in (0, 1, 7, 997, 70_001):
            rows = [any_bits(dtype, (count,), seed + r) for r in range(size)]
            what = f"of {count} {name}"
            for root in range(size) if count < 1000 else [size - 1]:
                tensor = rows[rank].clone()
                dist.broadcast(tensor, root)
                same_bits(tensor, rows[root], f"broadcast {what} from {root}")
            parts = [torch.empty(count, dtype=dtype) for _ in range(size)]
            dist.all_gather(parts, rows[rank])
            for r in range(size):
                same_bits(parts[r], rows[r], f"all_gather {what}, part {r}")
            whole = torch.empty(size * count, dtype=dtype)
            dist.all_gather_into_tensor(whole, rows[rank])
            same_bits(whole, torch.cat(rows), f"all_gather_into_tensor {what}")
            whole = torch.empty(size * count, dtype=dtype)
            mine = whole[rank * count : (rank + 1) * count]
            mine.copy_(rows[rank])
            dist.all_gather_into_tensor(whole, mine)
            same_bits(whole, torch.cat(rows), f"all_gather_into_tensor {what}, in place")


@pytest.mark.parametrize("size", SIZES)
def test_broadcast_and_all_gather_move_any_dtype(pools, size: int):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    pools(size).run(_moved, seed)


def _large_moves() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    rows = [any_bits(torch.float32, (LARGE,), r) for r in range(size)]
    for root in range(size):
        tensor = rows[rank].clone()
        dist.broadcast(tensor, root)
        same_bits(tensor, rows[root], f"large broadcast from {root}")
    whole = torch.empty(size * LARGE)
    dist.all_gather_into_tensor(whole, rows[rank])
    same_bits(whole, torch.cat(rows), "large all_gather")


@pytest.mark.parametrize("size", SIZES)
def test_large_broadcast_and_all_gather(pools, size: int):
    pools(size).run(_large_moves)


def _layouts() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    total = float(size * (size + 1) // 2)
    layouts = {
        "transposed": lambda: torch.empty(30, 20).t(),
        "every other": lambda: torch.empty(50, 4)[::2, ::2],
        "channels last": lambda: torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "0-dim": lambda: torch.empty(()),
        "empty": lambda: torch.empty(0, 3),
    }
    for what, make in layouts.items():
        tensor = make().fill_(rank + 1.0)
        dist.all_reduce(tensor)
        same_bits(tensor, torch.full_like(tensor, total), f"all_reduce, {what}")
        tensor = make().fill_(rank + 1.0)
        dist.broadcast(tensor, size - 1)
        same_bits(tensor, torch.full_like(tensor, float(size)), f"broadcast, {what}")
        parts = [make() for _ in range(size)]
        dist.all_gather(parts, make().fill_(rank + 1.0))
        for r, part in enumerate(parts):
            same_bits(part, torch.full_like(part, r + 1.0), f"all_gather, {what}")
    # What lies between the elements of a view is not ours.
    behind = torch.zeros(10, 2)
    dist.all_reduce(behind[:, 0].fill_(1.0))
    assert behind[:, 1].eq(0).all() and behind[:, 0].eq(size).all()
    _layouts_of_two_tensors(rank, size)


def _layouts_of_two_tensors(rank: int, size: int) -> None:
    rows = torch.arange(size * 12.0).reshape(size, 3, 4)
    out = torch.empty(4, 3 * size).t()
    dist.all_gather_into_tensor(out, rows[rank].t().contiguous().t())
    same_bits(out.contiguous(), rows.reshape(3 * size, 4), "all_gather_into_tensor, strided")
    # The input is a part of the output, but not its own part.
    whole = torch.zeros(size, 5)
    whole[(rank + 1) % size] = rank
    dist.all_gather_into_tensor(whole, whole[(rank + 1) % size])
    same_bits(whole, torch.arange(float(size))[:, None].expand(size, 5).contiguous(), "overlapping")
    given = torch.arange(size * 6.0).reshape(size * 2, 3)
    out = torch.empty(3, 2).t()
    dist.reduce_scatter_tensor(out, given.t().contiguous().t())
    same_bits(out.contiguous(), given[2 * rank : 2 * rank + 2] * size, "reduce_scatter, strided")
    whole = given.clone()
    dist.reduce_scatter_tensor(whole[2 * rank : 2 * rank + 2], whole)
    same_bits(whole[2 * rank : 2 * rank + 2], given[2 * rank : 2 * rank + 2] * size, "in place")


@pytest.mark.parametrize("size", SIZES)
def test_layouts(pools, size: int):
    pools(size).run(_layouts)
