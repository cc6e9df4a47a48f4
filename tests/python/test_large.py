"""Tensors of more than 2^31 elements and bytes."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist

pytestmark = pytest.mark.alone

COUNT = (1 << 31) + 11
MARKS = [0, 1 << 30, (1 << 31) - 1, 1 << 31, COUNT - 1]
# Two ranks with a tensor each, and the data in flight.
NEEDED = 3 * COUNT


def _available() -> int:
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _reduce_and_send() -> list[list[int]]:
    rank = dist.get_rank()
    tensor = torch.zeros(COUNT, dtype=torch.uint8)
    for i, mark in enumerate(MARKS):
        tensor[mark] = 10 * rank + i + 1
    dist.all_reduce(tensor)
    reduced = [int(tensor[mark]) for mark in MARKS]
    assert int(tensor.count_nonzero()) == len(MARKS), "something landed elsewhere"
    if rank == 0:
        tensor[COUNT - 1] = 77
        dist.send(tensor, 1)
    else:
        dist.recv(tensor, 0)
    return [reduced, [int(tensor[COUNT - 1])]]


@pytest.mark.default_of("RINGDIST_SEGMENT_BYTES", reason="small ones would take minutes")
@pytest.mark.timeout(300)
def test_more_than_2_gib(pools):
    if _available() < NEEDED:
        pytest.skip(f"needs {NEEDED >> 30} GiB of free memory, has {_available() >> 30}")
    for found in pools(2).run(_reduce_and_send, timeout=240):
        assert found == [[2 * i + 12 for i in range(len(MARKS))], [77]]
