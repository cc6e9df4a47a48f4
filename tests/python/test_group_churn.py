"""Groups that come and go leave nothing behind. benchmarks/group_churn.py tests more of them."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GROUPS, WARM = 120, 60
# For Python's caches and the allocator. A leaked group would be at least 25 KiB, so 1500 in total.
ALLOWED_KIB = 1024


def _churn(groups: int, marks: list[int]) -> list[dict[str, int]]:
    sys.path.insert(0, str(ROOT))
    from benchmarks import group_churn

    return [vars(at) for at in group_churn.churn(groups, set(marks), "ringdist")]


@pytest.mark.parametrize("size", [2, 3])
def test_groups_leave_nothing_behind(fresh_pool, size: int):
    """Each process must have the same descriptors and threads before, between and after."""
    for rank, found in enumerate(fresh_pool(size).run(_churn, GROUPS, [1, WARM, GROUPS])):
        for name in ("descriptors", "threads"):
            assert len({at[name] for at in found}) == 1, f"rank {rank}: {name} in {found}"
        grown = found[-1]["resident_kib"] - found[-2]["resident_kib"]
        assert grown <= ALLOWED_KIB, f"rank {rank}: {grown} KiB in {GROUPS - WARM} groups: {found}"


def test_what_stays_is_found(fresh_pool):
    """Tests the measurement itself, with a descriptor, a thread and memory leaked on purpose."""
    for found in fresh_pool(2).run(_keep):
        before, after = found
        assert after["descriptors"] == before["descriptors"] + 1
        assert after["threads"] == before["threads"] + 1
        assert after["resident_kib"] >= before["resident_kib"] + 4096


def _keep() -> list[dict[str, int]]:
    sys.path.insert(0, str(ROOT))
    from benchmarks import group_churn

    group_churn.settle()  # threads that formed the group
    before = vars(group_churn.Footprint.now(0))
    release = threading.Event()
    thread = threading.Thread(target=release.wait, args=(30,))
    thread.start()
    descriptor = os.dup(0)
    block = bytearray(os.urandom(1 << 20)) * 5
    after = vars(group_churn.Footprint.now(1))
    release.set()
    thread.join()
    os.close(descriptor)
    assert len(block) == 5 << 20
    return [before, after]
