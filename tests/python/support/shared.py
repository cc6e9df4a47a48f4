"""Observations of a rank about tensors in shared memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch.distributed as dist

import torch_ringdist
from support.rank import poll

NAME = "/memfd:ringdist-tensor"

# True if payloads may be read in place. Only shm supports this, which is the default inside a host,
# and only for more than 64 KiB.
FORCED = ("RINGDIST_TRANSPORT", "RINGDIST_SEGMENT_BYTES")
READS_IN_PLACE = not any(os.environ.get(name) for name in FORCED)

# Marks of tests. One needs reads in place; for the other nothing else may be shared or kept.
reads_in_place = pytest.mark.default_of(
    *FORCED, reason="shm alone has others read in place, and messages above 64 KiB only"
)
shares_alone = pytest.mark.default_of(
    "SHARE_TEST_TENSORS", reason="other tensors are shared, too, and freed memory is kept"
)


def mappings(pid: int | str = "self") -> int:
    """Returns the number of mappings of shared tensors: this process's own, and those that it
    reads."""
    return Path(f"/proc/{pid}/maps").read_text().count(NAME)


def read_in_place() -> int:
    return torch_ringdist.stats()["bytes_read_in_place"]


def settle() -> None:
    """Waits until all ranks have freed their shared tensors and unmapped those of others."""
    dist.barrier()
    assert poll(lambda: mappings() == 0), f"{mappings()} mappings are left"
    dist.barrier()
