"""What a rank can see of tensors in shared memory."""

from __future__ import annotations

from pathlib import Path

import torch.distributed as dist

import torch_ringdist
from support.rank import poll

NAME = "/memfd:ringdist-tensor"


def mappings(pid: int | str = "self") -> int:
    """Of shared tensors: this process's and those that it reads."""
    return Path(f"/proc/{pid}/maps").read_text().count(NAME)


def read_in_place() -> int:
    return torch_ringdist.stats()["bytes_read_in_place"]


def settle() -> None:
    """All ranks have freed what they shared, and unmapped what others did."""
    dist.barrier()
    assert poll(lambda: mappings() == 0), f"{mappings()} mappings are left"
    dist.barrier()
