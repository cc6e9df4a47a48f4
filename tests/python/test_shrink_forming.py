"""A rank dies while its group forms."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from support.rank import Raised, Ranks, caught, init, store_for
from test_shrink import PEER_TIMEOUT, _everything_works, _leave, _run, _shrink

import torch_ringdist
from torch_ringdist._shrink import ShrinkReport


def _init() -> None:
    init()


def _form_without_the_dead() -> tuple[Raised | None, ShrinkReport]:
    error = caught(dist.all_reduce, torch.ones(3))
    report = _shrink()
    _everything_works()
    return error, report


@pytest.mark.parametrize("last", [0, 1])
def test_one_is_killed_before_the_others_have_come(fresh_pool, last: int):
    """The dead rank has published its rank info in the store, and never answers."""
    environment = {"RINGDIST_PEER_TIMEOUT": str(PEER_TIMEOUT)}
    pool = fresh_pool(3, init=False, environment=environment)
    survivors = {0, 1}
    _run(pool, {2, 1 - last}, _init)
    pool.kill(2)
    pool.processes[2].join()
    _run(pool, {last}, _init)
    outcomes = _run(pool, survivors, _form_without_the_dead)
    for error, report in outcomes.values():
        # The other survivor may have called shrink() before this one had an error of its own.
        assert error is not None, report
        assert "rank 2 (" in error.text or "members were lost" in error.text, error
        assert [one.rank for one in report.lost] == [2] and report.stayed == (0, 1), report
    _run(pool, survivors, _leave)


def _shrink_what_nobody_knows() -> Raised | None:
    init(timeout=timedelta(seconds=2))
    caught(dist.all_reduce, torch.ones(3))
    error = caught(torch_ringdist.shrink)
    dist.destroy_process_group()
    others = store_for("those that live")
    dist.init_process_group("ringdist", store=others, rank=Ranks.rank, world_size=2)
    _everything_works()
    _leave()
    return error


def test_a_group_that_never_found_its_members(fresh_pool):
    pool = fresh_pool(3, init=False)
    for error in _run(pool, {0, 1}, _shrink_what_nobody_knows).values():
        assert error is not None and "ArgumentError" in error.kinds, error
        assert "it has not found its members" in error.text, error
        assert "init_process_group() on those that live" in error.text, error
