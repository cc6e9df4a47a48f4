"""all_to_all and all_to_all_single with even, uneven and empty parts of every dtype and layout."""

from __future__ import annotations

import random

import pytest
import torch
import torch.distributed as dist
from support.rank import same_bits
from support.reference import MOVED_ONLY, OPAQUE, REDUCIBLE, any_bits

SIZES = [1, 2, 3, 4]
Parts = list[list[torch.Tensor]]


def drawn(size: int, seed: int, largest: int) -> list[list[int]]:
    """Returns the number of rows that rank i has for rank j, equal on all ranks."""
    draw = random.Random(seed)
    return [[draw.choice([0, draw.randrange(largest)]) for _ in range(size)] for _ in range(size)]


def parts(rows: list[list[int]], dtype: torch.dtype, seed: int, *shape: int) -> Parts:
    """Returns the parts that rank i has for rank j, with rows[i][j] rows."""
    size = len(rows)
    return [
        [any_bits(dtype, (rows[i][j], *shape), seed + size * i + j) for j in range(size)]
        for i in range(size)
    ]


def _moves_parts(seed: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for name, dtype in {**REDUCIBLE, **MOVED_ONLY, **OPAQUE}.items():
        for rows in ([[3] * size] * size, [[0] * size] * size, drawn(size, seed, 50)):
            whole = parts(rows, dtype, seed, 2)
            given, wanted = whole[rank], [whole[i][rank] for i in range(size)]
            got = [torch.empty_like(part) for part in wanted]
            dist.all_to_all(got, given)
            for i in range(size):
                same_bits(got[i], wanted[i], f"all_to_all {name}, part of {i} of {rows}")
            out = any_bits(dtype, (sum(len(part) for part in wanted), 2), seed)
            dist.all_to_all_single(
                out,
                torch.cat([g.view(torch.uint8) for g in given]).view(dtype),
                [len(part) for part in wanted],
                rows[rank],
            )
            whole_out = torch.cat([part.view(torch.uint8) for part in wanted]).view(dtype)
            same_bits(out, whole_out, f"all_to_all_single {name} of {rows}")


@pytest.mark.parametrize("size", SIZES)
def test_every_dtype_in_parts_of_any_size(pools, size: int):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    pools(size).run(_moves_parts, seed)


def _even(count: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    given = torch.arange(float(size * count)) + 1000.0 * rank
    wanted = torch.cat(
        [torch.arange(float(count)) + rank * count + 1000.0 * r for r in range(size)]
    )
    dist.all_to_all_single(out := torch.empty(size * count), given)
    same_bits(out, wanted, f"{count} elements for each")
    work = dist.all_to_all_single(again := torch.empty(size * count), given, async_op=True)
    assert work.get_future().wait()[0].data_ptr() == again.data_ptr()
    same_bits(again, wanted, "asynchronous")
    dist.all_to_all_single(given, given)
    same_bits(given, wanted, "in place")


@pytest.mark.parametrize("count", [0, 1, 1000, 300_007])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.check
def test_even_parts(pools, size: int, count: int):
    pools(size).run(_even, count)


def _large_and_uneven(seed: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    whole = parts(drawn(size, seed, 400_000), torch.float32, seed)
    wanted = [whole[i][rank] for i in range(size)]
    got = [torch.empty_like(part) for part in wanted]
    dist.all_to_all(got, whole[rank])
    for i in range(size):
        same_bits(got[i], wanted[i], f"part of {i}, {len(wanted[i])} elements")


@pytest.mark.parametrize("size", SIZES)
def test_large_uneven_parts(pools, size: int):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    pools(size).run(_large_and_uneven, seed)


def _layouts() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    given = [torch.full((3, 2), float(10 * rank + r)).t() for r in range(size)]
    got = [torch.zeros(4, 3)[::2] for _ in range(size)]
    dist.all_to_all(got, given)
    for r in range(size):
        same_bits(got[r], torch.full((2, 3), float(10 * r + rank)), f"strided part of {r}")
    dist.all_to_all(given, given)
    for r in range(size):
        same_bits(given[r], torch.full((2, 3), float(10 * r + rank)), f"part of {r}, in place")
    out = torch.zeros(2, size).t()
    dist.all_to_all_single(out, torch.full((2, size), float(rank)).t())
    same_bits(out, torch.arange(float(size))[:, None].expand(size, 2).contiguous(), "columns")
    # If all outputs are one tensor, they are written in order.
    box = torch.zeros(5)
    dist.all_to_all([box] * size, [torch.full((5,), float(10 * rank + r)) for r in range(size)])
    same_bits(box, torch.full((5,), float(10 * (size - 1) + rank)), "the last one wins")


@pytest.mark.parametrize("size", SIZES)
def test_layouts_and_aliases(pools, size: int):
    pools(size).run(_layouts)
