"""What a rank can see of tensors in shared memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch.distributed as dist

import torch_ringdist
from support.rank import poll

NAME = "/memfd:ringdist-tensor"

# Whether a payload is ever read where it lies: by shm alone, which a host takes by itself, and only
# if it has more than 64 KiB.
FORCED = ("RINGDIST_TRANSPORT", "RINGDIST_SEGMENT_BYTES")
READS_IN_PLACE = not any(os.environ.get(name) for name in FORCED)

# Of tests: something must be read in place; nothing else may be shared, or kept for what comes.
reads_in_place = pytest.mark.default_of(
    *FORCED, reason="shm alone has others read in place, and messages above 64 KiB only"
)
shares_alone = pytest.mark.default_of(
    "SHARE_TEST_TENSORS", reason="other tensors are shared, too, and freed memory is kept"
)


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
