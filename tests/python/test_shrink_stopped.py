"""A rank that stands still is left behind, and finds that out when it goes on."""

from __future__ import annotations

import signal
import time
from datetime import timedelta

import torch.distributed as dist
from support.pool import Pool
from support.rank import Raised, Ranks, caught
from test_shrink import Loss, _go_on, _leave, _prepared, _until_an_error

import torch_ringdist
from torch_ringdist._shrink import Lost

SLEEPER = 2
# The test waits for it. A live rank that stands still for that long on a busy machine would be
# left behind.
PEER_TIMEOUT = 4.0


def _go_on_without_the_sleeper() -> list[Loss] | tuple[Raised | None, bool]:
    if Ranks.rank != SLEEPER:
        return _go_on(2)
    _until_an_error()
    return caught(torch_ringdist.shrink, timeout=timedelta(seconds=20)), dist.is_initialized()


def leave_the_sleeper_behind(pool: Pool) -> None:
    _prepared(pool)
    pool.start(_go_on_without_the_sleeper)
    time.sleep(0.7)
    pool.kill(SLEEPER, signal.SIGSTOP)
    losses = pool.collect(without=(SLEEPER,))
    for [(_, _, report)] in losses.values():
        [lost] = report.lost
        assert lost == Lost(SLEEPER, SLEEPER, "silent", lost.where)
    pool.kill(SLEEPER, signal.SIGCONT)
    error, has_group = pool.collect(without=(0, 1))[SLEEPER]
    assert error is not None and "excluded in generation 1" in error.text, error
    assert has_group, "what failed changes nothing"
    pool.run(_leave)


def test_one_that_stopped_and_goes_on_later_is_out(fresh_pool):
    variables = {"RINGDIST_PEER_TIMEOUT": str(PEER_TIMEOUT)}
    leave_the_sleeper_behind(fresh_pool(3, environment=variables))
