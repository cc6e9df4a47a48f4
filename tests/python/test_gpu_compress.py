"""Compressed collectives of CUDA tensors give the same bits as those of CPU tensors."""

from __future__ import annotations

import random

import pytest
import torch
import torch.distributed as dist
from support.gpu import my_device, needs_gpu
from support.rank import new_group, same_bits

import torch_ringdist

pytestmark = needs_gpu
CODECS = [
    *("fp16", "bf16", "bf16:stochastic", "fp8", "fp8:e5m2", "int8", "int8:stochastic", "int4"),
    *("int2", "onebit", "topk:40", "randomk:10", "int4+h", "topk:40+h", "lossless"),
]
PAIRS = ["int8>fp8", "topk:40>bf16", "fp8>fp16"]
WITHOUT_FEEDBACK = {"fp16", "bf16:stochastic", "int8:stochastic", "randomk:10", "fp8>fp16"}
# These codecs draw random numbers, and the CPU draws anew for each segment.
DRAW = {"bf16:stochastic", "int8:stochastic", "randomk:10", "onebit", "int4+h", "topk:40+h"}
COUNTS = (1, 129, 5000, 200_003)


def _alike() -> list[tuple[torch.device, dist.ProcessGroup]]:
    """Returns the CPU and a GPU, each with its own group, so ops of equal number draw equal
    numbers."""
    return [(place, new_group()) for place in (torch.device("cpu"), my_device())]


def _counts(codec: str) -> tuple[int, ...]:
    return COUNTS[:-1] if codec in DRAW else COUNTS


def _all_reduce(codec: str, seed: int) -> None:
    rank, places = dist.get_rank(), _alike()
    feedback = codec not in WITHOUT_FEEDBACK
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for count in _counts(codec):
            noise = torch.Generator().manual_seed(seed + 10 * count + rank)
            owed = [torch.zeros(count, device=place) for place, _ in places]
            for step in range(2):
                given = torch.randn(count, generator=noise).to(dtype)
                tensors = [given.to(place, copy=True) for place, _ in places]
                for tensor, residual, (_, group) in zip(tensors, owed, places, strict=True):
                    torch_ringdist.all_reduce(
                        tensor,
                        dist.ReduceOp.AVG,
                        group,
                        codec=codec,
                        residual=residual if feedback else None,
                    )
                what = f"{codec}, {count} of {dtype}, step {step}"
                same_bits(tensors[1].cpu(), tensors[0], f"all_reduce {what}")
                same_bits(owed[1].cpu(), owed[0], f"residual of {what}")
    for _, group in places:
        dist.destroy_process_group(group)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("codec", [*CODECS, *PAIRS])
def test_all_reduce(pools, size: int, codec: str):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    pools(size).run(_all_reduce, codec, seed)


def _others(codec: str, seed: int) -> None:
    rank, size, places = dist.get_rank(), dist.get_world_size(), _alike()
    for count in _counts(codec):
        noise = torch.Generator().manual_seed(seed + 10 * count + rank)
        given = torch.randn(count * size, generator=noise)
        results = []
        for place, group in places:
            part = torch.empty(count, device=place)
            torch_ringdist.reduce_scatter_tensor(part, given.to(place), group=group, codec=codec)
            whole = torch.empty(count * size, device=place)
            mine = given[:count].to(place)
            torch_ringdist.all_gather_into_tensor(whole, mine, group, codec=codec)
            results.append((part.cpu(), whole.cpu()))
        for here, there, name in zip(*results, ("reduce_scatter", "all_gather"), strict=True):
            same_bits(there, here, f"{name} {codec} of {count}")
    for _, group in places:
        dist.destroy_process_group(group)


@pytest.mark.parametrize("codec", CODECS)
def test_reduce_scatter_and_all_gather(pools, codec: str):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    pools(2).run(_others, codec, seed)
