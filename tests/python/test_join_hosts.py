"""Newcomers come from other hosts. The store is in the process of rank 0, on host 0."""

from __future__ import annotations

import os
import random
import signal
import time
from datetime import timedelta

import pytest
from support.rank import Raised, Ranks, caught
from test_join import _found, _join, _join_and_wait, _member, _newcomer, _told_alike
from test_join_refused import _count_sums
from test_shrink import _leave, _run, _start
from test_shrink_hosts import SIZE, Start
from test_shrink_hosts import start as start

import torch_ringdist

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.default_of("RINGDIST_TRANSPORT", reason="hosts are reached by ucx alone"),
]


@pytest.mark.parametrize("members", [1, 2, 3])
def test_newcomers_of_other_hosts(start: Start, members: int):
    _, pool = start(hosts=4, forms=False, peer_timeout=10)
    _run(pool, set(range(members)), _found, members)
    _start(pool, set(range(members)), _member, SIZE)
    _start(pool, set(range(members, SIZE)), _newcomer, SIZE)
    reports = pool.collect()
    assert [rank for one in reports[0] for rank in one.joined] == list(range(members, SIZE))
    assert not any(one.lost for one in reports[0])
    pool.run(_leave)


def test_one_beside_a_member_and_one_of_another_host(start: Start):
    _, pool = start(hosts=2, forms=False, peer_timeout=10)
    _run(pool, {0, 2}, _found_by_the_even)
    _start(pool, {0, 2}, _member, SIZE)
    _start(pool, {1, 3}, _newcomer, SIZE)
    reports = pool.collect()
    assert [rank for one in reports[0] for rank in one.joined] == [2, 3]
    pool.run(_leave)


def _found_by_the_even() -> str:
    return _found(2, number=Ranks.rank // 2)


def _join_behind_a_wall(seconds: float) -> Raised | None:
    os.environ["RINGDIST_SOCKET_IFNAME"] = "inside"
    return caught(_join, timeout=timedelta(seconds=seconds))


def test_one_that_nobody_reaches_interrupts_nobody(start: Start):
    """The newcomer reaches the members from an address without a route back, like behind a NAT."""
    network, pool = start(hosts=4, forms=False, peer_timeout=10)
    _run(pool, {0, 1}, _found, 2)
    network.add_address(3, "inside", "192.0.2.9/32")
    _start(pool, {3}, _join_behind_a_wall, 6.0)
    counts = _run(pool, {0, 1}, _count_sums, 5.0)
    assert all(count > 0 for count in counts.values()), counts
    error = pool.collect(without=(0, 1, 2))[3]
    assert error is not None and "has not let this process in" in error.text, error
    assert "do not reach this process at 192.0.2.9:" in error.text, error
    _start(pool, {0, 1}, _member, 3)
    _start(pool, {2}, _newcomer, 3)
    reports = pool.collect(without=(3,))
    assert not any(one.lost for one in reports[0]), reports
    _run(pool, {0, 1, 2}, _leave)


@pytest.mark.parametrize("seed", range(4))
def test_one_vanishes_while_it_comes(start: Start, seed: int):
    """It vanishes with its host, so no notice is sent."""
    pauses = random.Random(seed)
    network, pool = start(hosts=4, forms=False, peer_timeout=4)
    _run(pool, {0, 1}, _found, 2)
    _start(pool, {0, 1}, _member, 3)
    _start(pool, {3}, _join_and_wait)
    pause = pauses.uniform(0.1, 0.8)
    print("seed", seed, "after", pause)
    time.sleep(pause)
    network.pull(3)
    pool.kill(3, signal.SIGKILL)
    time.sleep(pauses.uniform(0, 3))
    _start(pool, {2}, _newcomer, 3)
    reports = pool.collect(without=(3,))
    came = [rank for one in reports[0] for rank in one.joined]
    gone = [lost for one in reports[0] for lost in one.lost]
    assert len(came) == len(gone) + 1, reports
    assert _told_alike(reports[0], reports[1]), reports
    assert isinstance(reports[2][0], torch_ringdist.JoinReport)
    _run(pool, {0, 1, 2}, _leave)
