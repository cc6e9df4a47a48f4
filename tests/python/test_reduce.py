"""Reductions other than a plain all_reduce: to one rank, from lists, bitwise, scaled, rare
types."""

from __future__ import annotations

import random

import pytest
import torch
import torch.distributed as dist
from support.rank import new_group, same_bits
from support.reference import OPS, REDUCIBLE, any_bits, exact_inputs, reduced

import torch_ringdist

SIZES = [1, 2, 3]
COUNTS = [0, 1, 7, 1009, 40_011]
BITWISE = {
    "BAND": (dist.ReduceOp.BAND, torch.bitwise_and),
    "BOR": (dist.ReduceOp.BOR, torch.bitwise_or),
    "BXOR": (dist.ReduceOp.BXOR, torch.bitwise_xor),
}


def _reduce_exact(name: str, seed: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for op in OPS:
        for count in COUNTS if op == "SUM" else COUNTS[:4]:
            rows = exact_inputs(name, op, size, count, seed + count)
            for root in range(size):
                ours = rows[rank].clone()
                dist.reduce(ours, root, OPS[op])
                what = f"reduce {op} of {count} {name} to {root}"
                # Ranks other than the root keep their input.
                same_bits(ours, reduced(rows, op) if rank == root else rows[rank], what)


@pytest.mark.parametrize("name", REDUCIBLE)
@pytest.mark.parametrize("size", SIZES)
def test_reduce(pools, size: int, name: str):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    pools(size).run(_reduce_exact, name, seed)


def _scatter_lists(name: str, seed: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    draw = random.Random(seed)
    layouts = [[5] * size, [0] * size, [30_011] * size, [0] * (size - 1) + [7]]
    layouts += [[draw.randrange(3000) for _ in range(size)] for _ in range(4)]
    for counts in layouts:
        for op in OPS if max(counts) < 10 else ["SUM", "AVG"]:
            rows = exact_inputs(name, op, size, sum(counts), seed)
            given = list(rows[rank].clone().split(counts))
            out = torch.empty(counts[rank], dtype=REDUCIBLE[name])
            dist.reduce_scatter(out, given, OPS[op])
            what = f"reduce_scatter {op} of {counts} {name}"
            same_bits(out, reduced(rows, op).split(counts)[rank], what)
            same_bits(torch.cat(given), rows[rank], f"input of {what}")


@pytest.mark.parametrize("name", REDUCIBLE)
@pytest.mark.parametrize("size", SIZES)
def test_reduce_scatter_of_lists(pools, size: int, name: str):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    pools(size).run(_scatter_lists, name, seed)


def _scatter_layouts() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    # Strided inputs of several shapes, and an output that is one of them.
    given = [torch.full((3, 4), float(rank + 10 * r)).t() for r in range(size)]
    expected = torch.full((4, 3), 10.0 * rank * size + size * (size - 1) / 2)
    dist.reduce_scatter(out := torch.empty(3, 4).t(), given)
    same_bits(out, expected, "strided")
    dist.reduce_scatter(given[rank], given)
    same_bits(given[rank], expected, "in place")


@pytest.mark.parametrize("size", SIZES)
def test_reduce_scatter_of_strided_and_aliased_lists(pools, size: int):
    pools(size).run(_scatter_layouts)


def _bitwise(seed: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    whole = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
    for dtype in whole:
        for op, (ours, exact) in BITWISE.items():
            for count in (0, 3, 5003):
                rows = [any_bits(dtype, (count,), seed + r) for r in range(size)]
                expected = rows[0].clone()
                for row in rows[1:]:
                    expected = exact(expected, row)
                what = f"{op} of {count} {dtype}"
                dist.all_reduce(tensor := rows[rank].clone(), ours)
                same_bits(tensor, expected, what)
                dist.reduce(tensor := rows[rank].clone(), size - 1, ours)
                same_bits(tensor, expected if rank == size - 1 else rows[rank], f"reduce {what}")


@pytest.mark.parametrize("size", SIZES)
def test_bitwise_reductions(pools, size: int):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    pools(size).run(_bitwise, seed)


def _scaled() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    total = size * (size + 1) / 2
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int32):
        for factor in (2.0, torch.tensor([2], dtype=dtype)):
            op = dist._make_nccl_premul_sum(factor)
            given = torch.full((100,), rank + 1, dtype=dtype)
            tensor = given.clone()
            dist.all_reduce(tensor, op)
            same_bits(tensor, torch.full((100,), 2 * total, dtype=dtype), f"all_reduce {dtype}")
            tensor = given.clone()
            dist.reduce(tensor, 0, op)
            expected = torch.full((100,), 2 * total, dtype=dtype) if rank == 0 else given
            same_bits(tensor, expected, f"reduce {dtype}")
            out = torch.empty(100, dtype=dtype)
            whole = given.repeat(size)
            dist.reduce_scatter_tensor(out, whole, op)
            same_bits(out, torch.full((100,), 2 * total, dtype=dtype), f"reduce_scatter {dtype}")
            same_bits(whole, given.repeat(size), "the input")
            dist.reduce_scatter(out, list(whole.split(100)), op)
            same_bits(out, torch.full((100,), 2 * total, dtype=dtype), f"of a list {dtype}")
    # Each rank has its own factor.
    op = dist._make_nccl_premul_sum(float(rank))
    dist.all_reduce(tensor := torch.ones(3), op)
    same_bits(tensor, torch.full((3,), size * (size - 1) / 2), "different factors")


@pytest.mark.parametrize("size", SIZES)
def test_premultiplied_sums(pools, size: int):
    pools(size).run(_scaled)


INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def edges(name: str, ranks: int) -> torch.Tensor:
    """Returns rows, one per rank, with sums outside the dtype's range and means inside it."""
    info = torch.iinfo(getattr(torch, name))
    low, high = info.min, info.max
    values = [high, low, high - 1, low + 1, high // 2 + 1, 100 if low else 200, 1, 3, 5]
    rows = [[v - r if v > 9 else v + r for v in values * 40] for r in range(ranks)]
    return torch.tensor(rows, dtype=getattr(torch, name))


def _averages(name: str, algorithm: str) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    options = torch_ringdist.Options(algorithm=algorithm) if algorithm else None
    group = new_group(pg_options=options)
    rows = edges(name, size)[:, : 360 // size * size]
    mean = reduced(rows, "AVG")
    avg = dist.ReduceOp.AVG
    dist.all_reduce(whole := rows[rank].clone(), avg, group=group)
    same_bits(whole, mean, f"all_reduce of {name}")
    halves = [half.clone() for half in rows[rank].chunk(2)]
    dist.all_reduce_coalesced(halves, avg, group=group)
    same_bits(torch.cat(halves), mean, f"all_reduce_coalesced of {name}")
    dist.reduce(whole := rows[rank].clone(), 0, avg, group=group)
    same_bits(whole, mean if rank == 0 else rows[rank], f"reduce of {name}")
    mine = mean.view(size, -1)[rank]
    part = torch.empty_like(mine)
    dist.reduce_scatter_tensor(part, rows[rank].clone(), avg, group=group)
    same_bits(part, mine, f"reduce_scatter_tensor of {name}")
    part = torch.empty_like(mine)
    dist.reduce_scatter(part, list(rows[rank].clone().chunk(size)), avg, group=group)
    same_bits(part, mine, f"reduce_scatter of {name}")
    if name not in ("uint16", "uint32", "uint64"):
        sparse = rows[rank].to_sparse()
        dist.all_reduce(sparse, avg, group=group)
        same_bits(sparse.to_dense(), mean, f"sparse all_reduce of {name}")
    dist.destroy_process_group(group)


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("size", SIZES)
def test_averages_of_integers_do_not_wrap(pools, size: int, name: str):
    pools(size).run(_averages, name, "")


@pytest.mark.parametrize("algorithm", ["ring", "direct", "one_shot"])
def test_averages_of_integers_with_a_forced_algorithm(pools, algorithm: str):
    for name in ("int8", "int64"):
        pools(3).run(_averages, name, algorithm)


def _rare_types() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    flags = torch.tensor([False, rank == 0, True, rank != 0])
    dist.all_reduce(flags)
    assert flags.tolist() == [False, True, True, size > 1]
    for dtype in (torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2):
        dist.all_reduce(tensor := torch.full((33,), rank + 1.0).to(dtype))
        same_bits(tensor, torch.full((33,), size * (size + 1) / 2).to(dtype), f"{dtype}")
    for dtype in (torch.complex64, torch.complex128):
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            given = torch.full((5,), complex(rank, -1), dtype=dtype)
            expected = torch.full((5,), complex(size * (size - 1) / 2, -size), dtype=dtype)
            dist.all_reduce(tensor := given.clone(), op)
            scale = size if op == dist.ReduceOp.AVG else 1
            same_bits(tensor, expected / scale, f"{op} {dtype}")


@pytest.mark.parametrize("size", SIZES)
def test_types_that_are_seldom_reduced(pools, size: int):
    pools(size).run(_rare_types)
