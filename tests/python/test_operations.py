"""Every reduction and dtype, compared with exact arithmetic, and with gloo where it supports
them."""

from __future__ import annotations

import hashlib
import random
import time

import pytest
import torch
import torch.distributed as dist
from support.rank import new_group, oracle, same_bits
from support.reference import OPS, REDUCIBLE, exact_inputs, reduced

import torch_ringdist

SIZES = [1, 2, 3, 4, 5]
COUNTS = [0, 1, 2, 3, 5, 31, 97, 1009, 16411]
LARGE = 1_000_003
# Dtypes that gloo cannot reduce.
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
@pytest.mark.check
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


@pytest.mark.default_of("RINGDIST_ALGORITHM", reason="says what is chosen for small halves")
@pytest.mark.parametrize("size", SIZES[1:])
def test_small_halves_accumulate_in_fp32_in_rank_order(pools, size: int):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    pools(size).run(_halves_round_once, seed)


def _extremes() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    quiet = {"float64": 0x7FF8 << 48, "float32": 0x7FC00000, "float16": 0x7E00, "bfloat16": 0x7FC0}
    ints = {8: torch.int64, 4: torch.int32, 2: torch.int16}
    for name, nan_bits in quiet.items():
        dtype = REDUCIBLE[name]
        for odd in range(size):  # the rank with a special value
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


def _every_algorithm(seed: int) -> list[str]:
    names = [row[0] for row in torch_ringdist.info()["algorithms"]]
    for name in names:
        # With small segments, many are in flight from a tensor that is cheap to check.
        group = new_group(pg_options=torch_ringdist.Options(algorithm=name, segment_bytes=4096))
        for count in (0, 1, 5, 1013, 50_021):
            for dtype in ("float32", "bfloat16"):
                _all_with(group, exact_inputs(dtype, "SUM", group.size(), count, seed), name)
        dist.barrier(group=group)
        dist.destroy_process_group(group)
    return names


def _all_with(group: dist.ProcessGroup, rows: torch.Tensor, name: str) -> None:
    rank, size, count = group.rank(), group.size(), rows.shape[1]
    what = f"of {count} {rows.dtype} by {name}"
    dist.all_reduce(tensor := rows[rank].clone(), group=group)
    same_bits(tensor, reduced(rows, "SUM"), f"all_reduce {what}")
    dist.broadcast(tensor := rows[rank].clone(), size - 1, group=group)
    same_bits(tensor, rows[-1], f"broadcast {what}")
    whole = torch.empty(size * count, dtype=rows.dtype)
    dist.all_gather_into_tensor(whole, rows[rank], group=group)
    same_bits(whole, rows.reshape(-1), f"all_gather {what}")
    out = torch.empty(count, dtype=rows.dtype)
    dist.reduce_scatter_tensor(out, whole, group=group)
    same_bits(out, rows[rank] * size, f"reduce_scatter {what}")


@pytest.mark.parametrize("size", SIZES)
def test_every_algorithm(pools, size: int):
    names = pools(size).run(_every_algorithm, 7)
    assert len(names[0]) >= 4 and all(other == names[0] for other in names)


def _digest(seed: int) -> str:
    """Returns a digest of results that depend on the order of reduction, with random pauses."""
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
