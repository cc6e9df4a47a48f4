"""For tests on NVIDIA GPUs. Ranks share those that there are."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no NVIDIA GPU that this PyTorch can use"
)


def my_device() -> torch.device:
    """This rank's, from now on the current one."""
    device = torch.device("cuda", dist.get_rank() % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device
