"""Compressed collectives of CUDA tensors give, bit for bit, what those of CPU tensors give."""

from __future__ import annotations

import random

import pytest
import torch
import torch.distributed as dist
from support.gpu import my_device, needs_gpu
from support.rank import caught, same_bits

import torch_ringdist

pytestmark = needs_gpu
WITHOUT_FEEDBACK = ["fp16", "bf16:stochastic", "int8:stochastic", "fp8>fp16"]
CODECS = [
    *("bf16", "fp8", "fp8:e5m2", "int8", "int4", "int2", "onebit", "topk", "randomk"),
    *("int4+h", "topk+h", "int8>fp8", "topk>bf16", *WITHOUT_FEEDBACK),
]
COUNTS = (1, 129, 5000, 200_003)


def _all_reduce(codec: str, seed: int) -> None:
    rank, device = dist.get_rank(), my_device()
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for count in COUNTS:
            noise = torch.Generator().manual_seed(seed + 10 * count + rank)
            owed = torch.zeros(count), torch.zeros(count, device=device)
            residuals = (None, None) if codec in WITHOUT_FEEDBACK else owed
            for step in range(2):
                given = torch.randn(count, generator=noise).to(dtype)
                here, there = given.clone(), given.to(device)
                for tensor, residual in zip((here, there), residuals, strict=True):
                    torch_ringdist.all_reduce(
                        tensor, dist.ReduceOp.AVG, codec=codec, residual=residual
                    )
                what = f"{codec}, {count} of {dtype}, step {step}"
                same_bits(there.cpu(), here, f"all_reduce {what}")
                same_bits(owed[1].cpu(), owed[0], f"residual of {what}")


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("codec", CODECS)
def test_all_reduce(pools, size: int, codec: str):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    pools(size).run(_all_reduce, codec, seed)


def _others(codec: str, seed: int) -> None:
    rank, size, device = dist.get_rank(), dist.get_world_size(), my_device()
    for count in COUNTS:
        noise = torch.Generator().manual_seed(seed + 10 * count + rank)
        given = torch.randn(count * size, generator=noise)
        results = []
        for place in (torch.device("cpu"), device):
            part = torch.empty(count, device=place)
            torch_ringdist.reduce_scatter_tensor(part, given.to(place), codec=codec)
            whole = torch.empty(count * size, device=place)
            torch_ringdist.all_gather_into_tensor(whole, given[:count].to(place), codec=codec)
            results.append((part.cpu(), whole.cpu()))
        for here, there, name in zip(*results, ("reduce_scatter", "all_gather"), strict=True):
            same_bits(there, here, f"{name} {codec} of {count}")


@pytest.mark.parametrize("codec", CODECS)
def test_reduce_scatter_and_all_gather(pools, codec: str):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    pools(2).run(_others, codec, seed)


def _lossless_is_refused() -> None:
    tensor = torch.ones(100, device=my_device())
    error = caught(torch_ringdist.all_reduce, tensor, codec="lossless")
    assert error and "lossless" in error.text, error
    torch_ringdist.all_reduce(tensor, codec="int8")
    assert tensor.eq(dist.get_world_size()).all()


def test_lossless_is_refused_by_name(pools):
    pools(2).run(_lossless_is_refused)
