"""Operations that only move data, with tensors of every layout."""

from __future__ import annotations

import random

import pytest
import torch
import torch.distributed as dist
from support.rank import same_bits
from support.reference import MOVED_ONLY, OPAQUE, REDUCIBLE, any_bits

SIZES = [1, 2, 3, 4, 5]
LARGE = 1_000_003


def _moved(seed: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for name, dtype in {**MOVED_ONLY, **REDUCIBLE, **OPAQUE}.items():
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
            same_bits(whole, cat(rows), f"all_gather_into_tensor {what}")
            whole = torch.empty(size * count, dtype=dtype)
            mine = whole[rank * count : (rank + 1) * count]
            mine.view(torch.uint8).copy_(rows[rank].view(torch.uint8))
            dist.all_gather_into_tensor(whole, mine)
            same_bits(whole, cat(rows), f"all_gather_into_tensor {what}, in place")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.check
def test_broadcast_and_all_gather_move_any_dtype(pools, size: int):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    pools(size).run(_moved, seed)


def cat(rows: list[torch.Tensor]) -> torch.Tensor:
    """Does the same as torch.cat, also for dtypes that it does not support."""
    return torch.cat([row.view(torch.uint8) for row in rows]).view(rows[0].dtype)


def _to_and_from_a_root(seed: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for name, dtype in {**MOVED_ONLY, **REDUCIBLE, **OPAQUE}.items():
        for count in (0, 1, 997) if name != "float32" else (0, 1, 997, 300_007):
            rows = [any_bits(dtype, (count,), seed + r) for r in range(size)]
            for root in range(size):
                what = f"of {count} {name}, root {root}"
                parts = [torch.empty(count, dtype=dtype) for _ in rows] if rank == root else None
                dist.gather(rows[rank].clone(), parts, root)
                for r in range(size if rank == root else 0):
                    same_bits(parts[r], rows[r], f"gather {what}, part {r}")
                out = torch.empty(count, dtype=dtype)
                dist.scatter(out, [row.clone() for row in rows] if rank == root else None, root)
                same_bits(out, rows[rank], f"scatter {what}")


@pytest.mark.parametrize("size", SIZES[:3])
def test_gather_and_scatter_move_any_dtype(pools, size: int):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    pools(size).run(_to_and_from_a_root, seed)


def _uneven_gathers(seed: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    draw = random.Random(seed)
    layouts = [[0] * (size - 1) + [9], [70_001] + [3] * (size - 1)]
    layouts += [[draw.randrange(3000) for _ in range(size)] for _ in range(4)]
    for counts in layouts:
        for dtype in (torch.float32, torch.bool, torch.complex128, torch.uint8):
            rows = [any_bits(dtype, (counts[r],), seed + r) for r in range(size)]
            parts = [torch.empty(count, dtype=dtype) for count in counts]
            dist.all_gather(parts, rows[rank])
            for r in range(size):
                same_bits(parts[r], rows[r], f"part {r} of {counts} {dtype}")


@pytest.mark.parametrize("size", SIZES)
def test_all_gather_of_parts_that_differ_in_size(pools, size: int):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    pools(size).run(_uneven_gathers, seed)


def _aliases() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    box = torch.zeros(6)
    dist.all_gather([box] * size, torch.full((6,), float(rank)))
    same_bits(box, torch.full((6,), size - 1.0), "all_gather into one tensor: the last one wins")
    dist.gather(torch.full((6,), float(rank)), [box] * size if rank == 0 else None, 0)
    same_bits(box, torch.full((6,), size - 1.0), "gather into one tensor")
    rows = torch.full((size, 3), -1.0)
    rows[rank] = rank
    dist.all_gather(list(rows), rows[rank])
    same_bits(rows, torch.arange(float(size))[:, None].expand(size, 3).contiguous(), "own rows")
    dist.scatter(box, [torch.full((6,), float(r)) for r in range(size)] if rank == 0 else None, 0)
    same_bits(box, torch.full((6,), float(rank)), "scatter")
    if rank == 0:
        lists = [torch.full((2, 2), 1.0 * r).t() for r in range(size)]
        dist.scatter(lists[0], lists, 0)
        same_bits(lists[0], torch.zeros(2, 2), "scatter in place")
    else:
        dist.scatter(out := torch.ones(2, 2).t(), None, 0)
        same_bits(out, torch.full((2, 2), float(rank)), "scatter, strided")
    columns = torch.full((3, 4), float(rank)).t()
    got = [torch.empty(3, 4).t() for _ in range(size)] if rank == size - 1 else None
    dist.gather(columns, got, size - 1)
    for r in range(size if got else 0):
        same_bits(got[r], torch.full((4, 3), float(r)), "gather, strided")


@pytest.mark.parametrize("size", SIZES[:3])
def test_aliased_and_strided_lists(pools, size: int):
    pools(size).run(_aliases)


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
    # The memory between the elements of a view must not change.
    behind = torch.zeros(10, 2)
    dist.all_reduce(behind[:, 0].fill_(1.0))
    assert behind[:, 1].eq(0).all() and behind[:, 0].eq(size).all()
    _layouts_of_two_tensors(rank, size)


def _layouts_of_two_tensors(rank: int, size: int) -> None:
    rows = torch.arange(size * 12.0).reshape(size, 3, 4)
    out = torch.empty(4, 3 * size).t()
    dist.all_gather_into_tensor(out, rows[rank].t().contiguous().t())
    same_bits(out.contiguous(), rows.reshape(3 * size, 4), "all_gather_into_tensor, strided")
    # The input is a part of the output, but not this rank's part.
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
