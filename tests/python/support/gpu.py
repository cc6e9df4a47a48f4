"""Helpers for tests on NVIDIA GPUs. Ranks share the GPUs that exist."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist

needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no NVIDIA GPU that this PyTorch can use"
)


def needs_nccl_of(ranks: int) -> None:
    """Skips where NCCL rejects this many ranks, because each needs its own GPU unless sharing is
    enabled."""
    if ranks > torch.cuda.device_count() and os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") != "1":
        pytest.skip(
            f"{torch.cuda.device_count()} GPU, and NCCL_MULTI_RANK_GPU_ENABLE is not 1 (from NCCL "
            "2.30.3 on): NCCL takes one for each rank"
        )


def my_device() -> torch.device:
    """Returns this rank's device and makes it the current one."""
    device = torch.device("cuda", dist.get_rank() % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device
