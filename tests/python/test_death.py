"""A rank is killed or stops. All others must get an error in time that names it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.pool import Pool
from support.rank import Raised, caught

SIZE = 4
# A death that is found only by silence, or by the timeout of an operation, takes LONG.
LONG = 300
PATIENT = {"RINGDIST_PEER_TIMEOUT": str(LONG)}
DEATH_LIMIT = 60.0  # far less than LONG, and more than a busy machine stalls a process
PEER_TIMEOUT = 4.0  # test_stopped waits for it


def _prepare() -> None:
    """Connects all ranks, and forks a child that keeps all sockets, like a DataLoader's worker."""
    dist.barrier()
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)


def _busy(megabytes: int) -> Raised:
    tensor = torch.ones(megabytes << 18)
    while not (error := caught(dist.all_reduce, tensor.fill_(1))):
        pass
    return error


def _waiting(absent: int) -> Raised:
    if dist.get_rank() == absent:
        time.sleep(600)
    return caught(dist.all_reduce, torch.ones(1000))


def _call_once() -> Raised:
    return caught(dist.all_reduce, torch.ones(1000))


def _patient(fresh_pool: Callable[..., Pool], **launch: Any) -> Pool:
    """Returns a pool in which only the report of a death ends a wait within LONG."""
    limit = timedelta(seconds=LONG)
    return fresh_pool(SIZE, **{"environment": PATIENT, "timeout": limit, **launch})


def _prepared(pool: Pool) -> Pool:
    pool.run(_prepare)
    return pool


def _errors(pool: Pool, victim: int, begin: float) -> dict[int, float]:
    """Returns the seconds from `begin` until each survivor raised. All must name the victim in
    time."""
    errors = pool.collect(DEATH_LIMIT + 5, without=(victim,))
    took = {rank: error.at - begin for rank, error in errors.items()}
    print("seconds from the signal to the error:", {r: round(t, 3) for r, t in took.items()})
    for rank, error in errors.items():
        assert "DistNetworkError" in error.kinds, f"rank {rank}: {error}"
        assert f"rank {victim} (" in error.text, f"rank {rank}: {error}"
        assert took[rank] < DEATH_LIMIT, f"rank {rank} after {took[rank]:.2f} s: {error}"
    return took


# In a ring of 4, one rank always has no data connection to the victim.
@pytest.mark.parametrize("victim", [0, 2])
@pytest.mark.parametrize("megabytes", [1, 64])
@pytest.mark.parametrize("transport", ["shm", "tcp", "ucx"])
def test_killed_in_the_middle_of_an_op(fresh_pool, transport: str, victim: int, megabytes: int):
    variables = {**PATIENT, "RINGDIST_TRANSPORT": transport}
    pool = _prepared(_patient(fresh_pool, environment=variables))
    pool.start(_busy, megabytes)
    time.sleep(0.7)
    _errors(pool, victim, pool.kill(victim))


def test_killed_while_all_others_wait_for_it(fresh_pool):
    pool = _prepared(_patient(fresh_pool))
    pool.start(_waiting, 1)
    time.sleep(0.7)
    _errors(pool, 1, pool.kill(1))


@pytest.mark.check
def test_killed_while_nothing_runs(fresh_pool):
    pool = _prepared(_patient(fresh_pool))
    pool.kill(3)
    time.sleep(1.0)
    for pipe in pool.pipes[:3]:
        pipe.send((__name__, "_call_once", ()))
    for error in pool.collect(DEATH_LIMIT + 5, without=(3,)).values():
        assert error is not None and "rank 3 (" in error.text, error
        assert error.after < DEATH_LIMIT, error


@pytest.mark.parametrize("victim", [0, 2])
def test_killed_while_the_others_wait_for_its_first_op(fresh_pool, victim: int):
    pool = _patient(fresh_pool)
    pool.start(_waiting, victim)
    time.sleep(1.0)
    _errors(pool, victim, pool.kill(victim))


def test_killed_rank_that_holds_the_store(fresh_pool):
    pool = _prepared(_patient(fresh_pool, rank0_hosts_store=True))
    pool.start(_busy, 4)
    time.sleep(0.7)
    _errors(pool, 0, pool.kill(0))


@pytest.mark.parametrize("function", [_busy, _waiting])
@pytest.mark.parametrize("transport", ["shm", "tcp", "ucx"])
def test_stopped(fresh_pool, transport: str, function):
    variables = {"RINGDIST_PEER_TIMEOUT": str(PEER_TIMEOUT), "RINGDIST_TRANSPORT": transport}
    pool = _prepared(fresh_pool(SIZE, environment=variables))
    pool.start(function, 2)
    time.sleep(0.7)
    begin = pool.kill(2, signal.SIGSTOP)
    took = _errors(pool, 2, begin)
    assert min(took.values()) > PEER_TIMEOUT / 2, "given up too soon: it might have come back"
    assert min(took.values()) < 10, "given up after the default of RINGDIST_PEER_TIMEOUT"


def test_stopped_and_continued_in_time(fresh_pool):
    pool = _prepared(fresh_pool(SIZE, environment={"RINGDIST_PEER_TIMEOUT": "10"}))
    pool.start(_rounds, 2.5)
    time.sleep(0.5)
    pool.kill(1, signal.SIGSTOP)
    time.sleep(2)
    pool.kill(1, signal.SIGCONT)
    pool.collect(60)


def _rounds(seconds: float) -> None:
    """Runs rounds until rank 0 stops them, so that all ranks do the same number."""
    end = time.monotonic() + seconds
    go_on = torch.ones(1)
    while go_on:
        dist.all_reduce(torch.ones(10_000))
        if dist.get_rank() == 0:
            go_on.fill_(time.monotonic() < end)
        dist.broadcast(go_on, 0)


def test_stopped_for_too_long_learns_that_it_is_out(fresh_pool):
    pool = _prepared(fresh_pool(2, environment={"RINGDIST_PEER_TIMEOUT": "3"}))
    pool.start(_busy, 1)
    time.sleep(1)
    pool.kill(1, signal.SIGSTOP)
    error = pool.collect(50, without=(1,))[0]
    assert "rank 1 (" in error.text, error
    pool.kill(1, signal.SIGCONT)
    own = pool.collect(50, without=(0,))[1]
    assert "rank 1" in own.text or "rank 0" in own.text, own
