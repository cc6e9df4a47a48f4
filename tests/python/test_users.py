"""Ranks of one host that run as different users."""

from __future__ import annotations

import ctypes
import os
import stat
from pathlib import Path

import pytest
import torch.distributed as dist
from support.rank import Raised, Ranks, caught, init

import torch_ringdist

NOBODY = 65534
PR_SET_DUMPABLE = 4


def _rank_1_as_nobody() -> Raised | None:
    if Ranks.rank == 1:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        # As after exec: else its own /proc is closed to it.
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    init()
    return caught(dist.barrier)


def _closed_to_others() -> str:
    """A folder above the package that only its owner may enter, "" if there is none."""
    package = Path(torch_ringdist.__file__).parent
    closed = [str(folder) for folder in package.parents if not folder.stat().st_mode & stat.S_IXOTH]
    return closed[0] if closed else ""


CLOSED = _closed_to_others()


@pytest.mark.root
@pytest.mark.skipif(bool(CLOSED), reason=f"only its owner may enter {CLOSED}: no import")
def test_the_error_names_the_users(fresh_pool):
    for error in fresh_pool(2, init=False).run(_rank_1_as_nobody):
        assert error, "a group of two users"
        for rank, user in enumerate((0, NOBODY)):
            assert f"rank {rank} (pid " in error.text and f"as uid {user}" in error.text, error
        assert "died" not in error.text, error
