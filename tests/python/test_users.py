"""Ranks of one host that run as users other than root."""

from __future__ import annotations

import ctypes
import os
import resource
import stat
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from support.rank import Raised, Ranks, caught, init, same_bits

import torch_ringdist

NOBODY = 65534
PR_SET_DUMPABLE = 4


def _become_nobody() -> None:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    # After exec it would be set. Without it, the process' own /proc is closed to it.
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)


def _rank_1_as_nobody() -> Raised | None:
    if Ranks.rank == 1:
        _become_nobody()
    init()
    return caught(dist.barrier)


def _closed_to_others() -> str:
    """Returns a folder above the package that only its owner may enter, or "" if there is none."""
    package = Path(torch_ringdist.__file__).parent
    closed = [str(folder) for folder in package.parents if not folder.stat().st_mode & stat.S_IXOTH]
    return closed[0] if closed else ""


CLOSED = _closed_to_others()


def becomes_nobody(test):
    reason = f"only its owner may enter {CLOSED}: no import"
    return pytest.mark.root(pytest.mark.skipif(bool(CLOSED), reason=reason)(test))


@becomes_nobody
def test_the_error_names_the_users(fresh_pool):
    for error in fresh_pool(2, init=False).run(_rank_1_as_nobody):
        assert error, "a group of two users"
        for rank, user in enumerate((0, NOBODY)):
            assert f"rank {rank} (pid " in error.text and f"as uid {user}" in error.text, error
        assert "died" not in error.text, error


def _all_connect_to_all(operation: str) -> None:
    """Connects all ranks at once, with the usual limits of a user without capabilities."""
    _become_nobody()
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
    init()
    size = dist.get_world_size()
    given = torch.arange(size * 1000, dtype=torch.int64) + Ranks.rank
    got = torch.empty_like(given)
    if operation == "all_to_all":
        dist.all_to_all_single(got, given)
        mine = torch.arange(Ranks.rank * 1000, (Ranks.rank + 1) * 1000)
    else:
        dist.all_gather_into_tensor(got, given[:1000].clone())
        mine = torch.arange(1000)
    same_bits(got, torch.cat([mine + peer for peer in range(size)]), operation)
    dist.destroy_process_group()


# The kernel limits the descriptors in flight of all processes of a user, unless the user has
# CAP_SYS_RESOURCE.
@becomes_nobody
@pytest.mark.default_of("RINGDIST_TRANSPORT", reason="UCX passes no descriptors")
@pytest.mark.parametrize("operation", ["all_to_all", "all_gather"])
def test_64_ranks_of_an_ordinary_user_connect_to_each_other(fresh_pool, operation: str):
    environment = {"RINGDIST_ALGORITHM": "direct"}
    fresh_pool(64, init=False, environment=environment).run(_all_connect_to_all, operation)
