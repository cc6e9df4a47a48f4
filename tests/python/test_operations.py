"""Every collective, dtype and reduction against exact arithmetic, and against gloo where it can."""

from __future__ import annotations

import hashlib
import random
import time

import pytest
import torch
import torch.distributed as dist
from support.rank import new_group, oracle, same_bits
from support.reference import MOVED_ONLY, OPS, REDUCIBLE, any_bits, exact_inputs, reduced

import torch_ringdist

SIZES = [1, 2, 3, 4, 5]
COUNTS = [0, 1, 2, 3, 5, 31, 97, 1009, 16411]
LARGE = 1_000_003
# What gloo cannot reduce.
NOT_IN_GLOO = {"int16"}


def _allreduce_exact(name: str, seed: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for op in OPS:
        for count in [*COUNTS, LARGE] if op in ("SUM", "MAX") else COUNTS:
            rows = exact_inputs(name, op, size, count, seed + count)
            what = f"all_reduce {op} of {count} {name}"
            ours = rows[rank].clone()
            dist.all_reduce(ours, OPS[op])
            same_bits(ours, reduced(rows, op), what)
            if op == "AVG" or name in NOT_IN_GLOO or not 0 < count <= 1009:
                continue
            theirs = rows[rank].clone()
            dist.all_reduce(theirs, OPS[op], group=oracle())
            same_bits(ours, theirs, f"{what}, against gloo")


@pytest.mark.parametrize("name", REDUCIBLE)
@pytest.mark.parametrize("size", SIZES)
def test_all_reduce(pools, size: int, name: str):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    pools(size).run(_allreduce_exact, name, seed)


def _reduce_scatter_exact(name: str, seed: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for op in OPS:
        for count in [*COUNTS, LARGE // size] if op == "SUM" else COUNTS:
            rows = exact_inputs(name, op, size, count * size, seed + count)
            given = rows[rank].clone()
            out = torch.empty(count, dtype=REDUCIBLE[name])
            dist.reduce_scatter_tensor(out, given, OPS[op])
            what = f"reduce_scatter {op} of {count} {name}"
            same_bits(out, reduced(rows, op)[rank * count : (rank + 1) * count], what)
            same_bits(given, rows[rank], f"input of {what}")


@pytest.mark.parametrize("name", REDUCIBLE)
@pytest.mark.parametrize("size", SIZES)
def test_reduce_scatter_tensor(pools, size: int, name: str):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    pools(size).run(_reduce_scatter_exact, name, seed)


def _halves_round_once(seed: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in (torch.float16, torch.bfloat16):
        for op in ("SUM", "AVG"):
            for count in (1, 7, 4099, 32 * 1024):  # the last one is 64 KiB
                rows = torch.randn(
                    size, count, generator=torch.Generator().manual_seed(seed + count)
                )
                rows = (rows * 100).to(dtype)
                ours = rows[rank].clone()
                dist.all_reduce(ours, OPS[op])
                same_bits(ours, reduced(rows, op), f"{op} of {count} random {dtype}")


@pytest.mark.parametrize("size", SIZES[1:])
def test_small_halves_accumulate_in_fp32_in_rank_order(pools, size: int):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    pools(size).run(_halves_round_once, seed)


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


def _extremes() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    quiet = {"float64": 0x7FF8 << 48, "float32": 0x7FC00000, "float16": 0x7E00, "bfloat16": 0x7FC0}
    ints = {8: torch.int64, 4: torch.int32, 2: torch.int16}
    for name, nan_bits in quiet.items():
        dtype = REDUCIBLE[name]
        for odd in range(size):  # the rank that has something special
            signed = -float("nan") if odd % 2 else float("nan")
            special = torch.tensor([signed, -0.0, 0.0, float("inf"), -float("inf")], dtype=dtype)
            plain = torch.tensor([1.0, 0.0, -0.0, 2.0, 2.0], dtype=dtype)
            for op, zeros in (("MIN", "--"), ("MAX", "++")):
                tensor = special.clone() if rank == odd else plain.clone()
                dist.all_reduce(tensor, OPS[op])
                what = f"{op} {name}, rank {odd} special: {tensor.tolist()}"
                bits = tensor.view(ints[tensor.element_size()])
                assert int(bits[0]) == nan_bits, what
                if size > 1:
                    signs = "".join("-" if b < 0 else "+" for b in bits[1:3].tolist())
                    assert signs == zeros and tensor[1:3].eq(0).all(), what
                    ends = [2.0, -float("inf")] if op == "MIN" else [float("inf"), 2.0]
                    assert tensor[3:].tolist() == ends, what


@pytest.mark.parametrize("size", SIZES)
def test_min_and_max_order_zeros_and_return_one_nan(pools, size: int):
    pools(size).run(_extremes)


def _algorithm(name: str, seed: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    # Small segments: many in flight from a tensor that is cheap to check.
    group = new_group(pg_options=torch_ringdist.Options(algorithm=name, segment_bytes=4096))
    for count in (0, 1, size, 1013, 50_021):
        for dtype in ("float32", "bfloat16"):
            rows = exact_inputs(dtype, "SUM", size, count, seed + count)
            tensor = rows[rank].clone()
            dist.all_reduce(tensor, group=group)
            same_bits(tensor, reduced(rows, "SUM"), f"{name} all_reduce, {count} {dtype}")
            dist.broadcast(tensor := rows[rank].clone(), size - 1, group=group)
            same_bits(tensor, rows[-1], f"{name} broadcast, {count} {dtype}")
            whole = torch.empty(size * count, dtype=rows.dtype)
            dist.all_gather_into_tensor(whole, rows[rank], group=group)
            same_bits(whole, rows.reshape(-1), f"{name} all_gather, {count} {dtype}")
            out = torch.empty(count, dtype=rows.dtype)
            dist.reduce_scatter_tensor(out, whole, group=group)
            same_bits(out, rows[rank] * size, f"{name} reduce_scatter, {count} {dtype}")
    dist.barrier(group=group)
    dist.destroy_process_group(group)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", [row[0] for row in torch_ringdist.info()["algorithms"]])
def test_every_algorithm(pools, name: str, size: int):
    pools(size).run(_algorithm, name, 7)


def _digest(seed: int) -> str:
    """Of results that depend on the order of reducing, taken with pauses that nobody repeats."""
    pause = random.Random()
    rank, size = dist.get_rank(), dist.get_world_size()
    digest = hashlib.sha256()
    for i, count in enumerate((3, 1009, 40_009, 300_007)):
        for dtype in (torch.float32, torch.bfloat16):
            noise = torch.Generator().manual_seed(seed + 10 * rank + i)
            tensor = (torch.randn(count, generator=noise) * 1e3).to(dtype)
            out = torch.empty(count // size, dtype=dtype)
            work = dist.all_reduce(tensor, async_op=True)
            time.sleep(pause.random() * 0.02)
            given = tensor.new_ones(count // size * size) / (rank + 3)
            dist.reduce_scatter_tensor(out, given)
            work.wait()
            parts = [torch.empty_like(out) for _ in range(size)]
            dist.all_gather(parts, out)
            for part in (tensor, *parts):
                digest.update(part.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("size", SIZES[1:])
def test_same_bits_on_all_ranks_and_in_every_run(pools, size: int):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    digests = [digest for _ in range(3) for digest in pools(size).run(_digest, seed)]
    assert len(set(digests)) == 1, digests


def _barrier_separates() -> tuple[float, float]:
    dist.barrier()
    time.sleep(0.1 * dist.get_rank())
    before = time.monotonic()
    dist.barrier()
    return before, time.monotonic()


@pytest.mark.parametrize("size", SIZES)
def test_barrier_ends_after_the_last_rank_came(pools, size: int):
    times = pools(size).run(_barrier_separates)
    assert max(before for before, _ in times) <= min(after for _, after in times)
