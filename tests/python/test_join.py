"""Newcomers become members of a group that is at work."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.job_key import key_variables, needs_tls
from support.pool import Pool
from support.rank import GROUP_TIMEOUT, Ranks, caught, poll, same_bits, store_for
from test_shrink import _as_rank_0, _everything_works, _leave, _run, _start, _sum_is_right
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torch_ringdist

LIMIT = timedelta(seconds=30)


def _found(members: int, number: int | None = None) -> str:
    """Creates the default group of `members` ranks, which accepts newcomers. `number` is this
    process' rank if it differs from that in the pool."""
    dist.init_process_group(
        "ringdist",
        store=store_for("default"),
        rank=Ranks.rank if number is None else number,
        world_size=members,
        timeout=Ranks.launch.timeout,
    )
    _sum_is_right()
    return torch_ringdist.admit(job=Ranks.launch.prefix)


def _join(**named: Any) -> torch_ringdist.JoinReport:
    rendezvous = named.pop("rendezvous", Ranks.store)
    group, report = torch_ringdist.join(
        rendezvous, **{"timeout": LIMIT, "job": Ranks.launch.prefix, **named}
    )
    assert group is dist.group.WORLD
    assert dist.get_rank() in report.joined, report
    return report


Reports = list[Any]


def _told_alike(one: Reports, other: Reports) -> bool:
    """Returns True if both end in the same generation and report common generations equally. A
    late process skips a generation."""

    def steps(reports: Reports) -> dict[tuple[int, int], Any]:
        numbers = [0, *(report.generation for report in reports)]
        return {(a, report.generation): report for a, report in zip(numbers, reports, strict=False)}

    a, b = steps(one), steps(other)
    return one[-1].generation == other[-1].generation and all(
        a[step] == b[step] for step in a.keys() & b.keys()
    )


def _sum_until(size: int, reports: Reports | None = None) -> Reports:
    """Sums through all generations until a group of that size has summed and all members agree."""
    reports = [] if reports is None else reports
    while True:
        try:
            tensor = torch.ones(1000)
            dist.all_reduce(tensor)
            assert tensor[0] == dist.get_world_size()
            if tensor[0] == size:
                dist.barrier()
                return reports
        except dist.DistNetworkError:
            group, report = torch_ringdist.shrink(timeout=LIMIT)
            assert group is dist.group.WORLD
            assert dist.get_process_group_ranks(group) == list(range(dist.get_world_size()))
            reports.append(report)


def _member(size: int, reports: Reports | None = None) -> Reports:
    reports = _sum_until(size, reports)
    _everything_works()
    return reports


def _newcomer(size: int, **named: Any) -> Reports:
    return _member(size, [_join(**named)])


def _pool(fresh_pool, members: int, newcomers: int, **launch: Any) -> Pool:
    pool = fresh_pool(members + newcomers, init=False, **launch)
    _run(pool, set(range(members)), _found, members)
    return pool


@pytest.mark.check
def test_one_comes_to_two(fresh_pool):
    pool = _pool(fresh_pool, 2, 1)
    _start(pool, {0, 1}, _member, 3)
    time.sleep(0.3)
    _start(pool, {2}, _newcomer, 3)
    reports = pool.collect()
    assert reports[0] == reports[1]
    [report] = reports[0]
    assert (report.generation, report.lost, report.stayed, report.joined) == (1, (), (0, 1), (2,))
    assert reports[2] == [torch_ringdist.JoinReport(1, (2,))]
    pool.run(_leave)


@pytest.mark.parametrize("members", [1, 3])
def test_two_come_at_once(fresh_pool, members: int):
    size = members + 2
    pool = _pool(fresh_pool, members, 2)
    _start(pool, set(range(members)), _member, size)
    _start(pool, {members, members + 1}, _newcomer, size)
    reports = pool.collect()
    joined = [rank for one in reports[0] for rank in one.joined]
    assert joined == [members, members + 1], reports
    pool.run(_leave)


def _newcomer_by_address(size: int) -> Reports:
    return _newcomer(size, rendezvous=f"127.0.0.1:{Ranks.launch.port}")


def _found_in_a_file(path: str) -> None:
    dist.init_process_group("ringdist", store=dist.FileStore(path, -1), rank=0, world_size=1)
    dist.barrier()
    torch_ringdist.admit(job=Ranks.launch.prefix)


def _newcomer_by_file(path: str, size: int) -> Reports:
    store = dist.FileStore(path, -1)
    store.set_timeout(timedelta(seconds=123))
    reports = _newcomer(size, rendezvous=store)
    assert store.timeout == timedelta(seconds=123)
    return reports


def test_one_comes_by_a_store_of_another_kind(fresh_pool, tmp_path: Path):
    """The newcomer's own store stays unchanged."""
    pool = fresh_pool(2, init=False)
    _run(pool, {0}, _found_in_a_file, str(tmp_path / "store"))
    _start(pool, {0}, _member, 2)
    _start(pool, {1}, _newcomer_by_file, str(tmp_path / "store"), 2)
    pool.collect()
    pool.run(_leave)


def _until_one_is_replaced() -> Reports:
    reports = _sum_until(2)  # without the lost newcomer
    return _member(3, reports)


def test_one_replaces_another(fresh_pool):
    pool = _pool(fresh_pool, 3, 1)
    _start(pool, {0, 1, 2}, _until_one_is_replaced)
    time.sleep(0.3)
    pool.kill(1)
    time.sleep(0.5)
    _start(pool, {3}, _newcomer_by_address, 3)
    reports = pool.collect(without=(1,))
    first, second = reports[0]
    assert [one.rank for one in first.lost] == [1]
    assert (second.stayed, second.joined) == ((0, 1), (2,))
    _run(pool, {0, 2, 3}, _leave)


Footprint = dict[str, int]
COUNTED = ("descriptors", "threads")


def _stand(size: int, visitors: list[int], before: dict[int, Footprint] | None) -> Footprint:
    """Admits these newcomers one by one and loses each. Returns the resources of this process, once
    they are at most those before, by rank, or after a while."""
    for visitor in visitors:
        _sum_until(size)
        _sum_until(size - 1)
        store_for("visits").set(f"{visitor} is lost to {Ranks.rank}", "")
    time.sleep(1.5)  # idle threads end after a second
    if before:
        mine = before[Ranks.rank]
        poll(lambda: all(_footprint()[name] <= mine[name] for name in COUNTED))
    return _footprint()


def _footprint() -> Footprint:
    with open("/proc/self/status") as status:
        resident = re.search(r"VmRSS:\s+(\d+)", status.read())
    assert resident
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "KiB": int(resident[1]),
    }


def _visit(size: int) -> None:
    """Joins first, or after all members have passed the barrier that follows the previous loss.
    A newcomer would end that barrier for the others."""
    if Ranks.rank > size - 1:
        members = range(size - 1)
        store_for("visits").wait([f"{Ranks.rank - 1} is lost to {rank}" for rank in members])
    _join()
    with contextlib.suppress(dist.DistNetworkError):
        _sum_until(size)
        dist.all_reduce(torch.ones(1000))  # all are past the barrier, which a death might fail
    os.kill(os.getpid(), signal.SIGKILL)


class _Visitors:
    """Newcomers that end when they have been a member."""

    def __init__(self, pool: Pool, first: int) -> None:
        self._pool, self._next = pool, first

    def one(self, size: int) -> None:
        rank = self._next
        self._next += 1
        _start(self._pool, {rank}, _visit, size)
        self._pool.processes[rank].join(40)
        assert self._pool.processes[rank].exitcode == -signal.SIGKILL


def test_many_come_and_go(fresh_pool):
    rounds = 6
    pool = _pool(fresh_pool, 2, 2 * rounds)
    visitors = _Visitors(pool, 2)
    feet: list[dict[int, Footprint]] = []
    for first in (2, 2 + rounds):
        before = feet[0] if feet else None
        _start(pool, {0, 1}, _stand, 3, list(range(first, first + rounds)), before)
        for _ in range(rounds):
            visitors.one(3)
        feet.append(pool.collect(without=tuple(range(2, pool.size))))
    for rank in (0, 1):
        once, twice = feet[0][rank], feet[1][rank]
        print(once, twice)
        assert all(twice[name] <= once[name] for name in COUNTED), (once, twice)


def test_one_is_killed_while_it_comes(fresh_pool):
    seed = int(os.environ.get("RINGDIST_TEST_SEED", "1"))
    print("seed", seed)
    pauses = random.Random(seed)
    victims = 4
    pool = _pool(fresh_pool, 2, victims + 1, environment={"RINGDIST_PEER_TIMEOUT": "5"})
    _start(pool, {0, 1}, _member, 3)
    for victim in range(2, 2 + victims):
        # Not with three ranks, or the members are done.
        _start(pool, {victim}, _join_and_wait)
        time.sleep(pauses.uniform(0.15, 0.45))
        pool.kill(victim)
    time.sleep(0.5)
    _start(pool, {2 + victims}, _newcomer, 3)
    reports = pool.collect(without=tuple(range(2, 2 + victims)))
    assert _told_alike(reports[0], reports[1]), reports
    came = [rank for one in reports[0] for rank in one.joined]
    gone = [lost for one in reports[0] for lost in one.lost]
    assert len(came) == len(gone) + 1, reports
    assert all(lost.rank >= 2 for lost in gone), reports


def _join_and_wait() -> None:
    _join()
    time.sleep(600)


def _find_the_store(size: int) -> Reports:
    """Acts like _member in a group with a lost store."""
    reports = _sum_until(2)
    [store] = [one.store for one in reports if one.store]
    assert torch_ringdist.admit(job=Ranks.launch.prefix) == store
    print("store", store)
    return _member(size, reports)


def _join_at(size: int, address: str) -> Reports:
    return _newcomer(size, rendezvous=address)


@pytest.mark.parametrize("has_key", [False, pytest.param(True, marks=needs_tls)])
def test_the_store_is_lost_and_newcomers_find_the_next(fresh_pool, tmp_path: Path, has_key: bool):
    key = key_variables(tmp_path, has_key)
    pool = fresh_pool(4, init=False, rank0_hosts_store=True, environment=key)
    _run(pool, {0, 1, 2}, _found, 3)
    _start(pool, {0, 1, 2}, _find_the_store, 3)
    time.sleep(0.3)
    pool.kill(0)
    deadline = time.monotonic() + 60
    while not (found := re.search(r"^store (\S+)$", pool.log(1), re.MULTILINE)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    _start(pool, {3}, _join_at, 3, found[1])
    reports = pool.collect(without=(0,))
    assert reports[1][-1].joined == (2,), reports
    assert reports[3] == [torch_ringdist.JoinReport(reports[1][-1].generation, (2,))]


def _decide_and_leave(how: str) -> None:
    """Votes for a newcomer, and is gone before it has called shrink()."""
    while True:
        error = caught(dist.all_reduce, torch.ones(3))
        if error:
            assert "newcomers wait" in error.text, error
            break
    time.sleep(0.5)  # the decision is made
    if how == "exit":
        os._exit(0)
    dist.destroy_process_group()


def _go_on(size: int) -> Reports:
    reports: Reports = []
    while not any(one.joined for one in reports) or not any(one.lost for one in reports):
        _until_an_error_or(size)
        reports.append(torch_ringdist.shrink(timeout=LIMIT)[1])
    return _member(size, reports)


def _until_an_error_or(size: int) -> None:
    with contextlib.suppress(dist.DistNetworkError):
        while True:
            dist.all_reduce(torch.ones(3))


@pytest.mark.parametrize("how", ["destroy", "exit", "kill"])
def test_one_leaves_when_a_newcomer_was_let_in(fresh_pool, how: str):
    pool = _pool(fresh_pool, 3, 1, environment={"RINGDIST_PEER_TIMEOUT": "5"})
    _start(pool, {0, 1}, _go_on, 3)
    _start(pool, {2}, _decide_and_leave, "stay" if how == "kill" else how)
    _start(pool, {3}, _newcomer, 3)
    if how == "kill":
        time.sleep(0.7)
        pool.kill(2)
    begin = time.monotonic()
    reports = pool.collect(without=(2,))
    assert time.monotonic() - begin < GROUP_TIMEOUT.total_seconds()
    assert _told_alike(reports[0], reports[1]), reports
    assert [one.rank for report in reports[0] for one in report.lost] == [2], reports


STEPS = 40


def _train(comes: bool) -> tuple[list[torch.Tensor], int]:
    """Runs the loop of docs/how-to/shrink-and-join.md, which handles losses and newcomers alike."""
    torch.manual_seed(Ranks.rank)
    module = nn.Sequential(nn.Linear(40, 30), nn.Tanh(), nn.Linear(30, 2))
    optimizer = torch.optim.Adam(module.parameters())
    model, step = None, 0  # newcomers may come while it is created
    if comes:
        _join()
    while step < STEPS:
        try:
            if model is None:
                step = _as_rank_0(module, optimizer, step)
                model = DistributedDataParallel(module)
            optimizer.zero_grad()
            model(torch.randn(8, 40)).square().mean().backward()
            optimizer.step()
            step += 1
            if dist.get_world_size() < 3:  # until the newcomer is there
                step = min(step, 10)
        except dist.DistNetworkError:
            model = None
            torch_ringdist.shrink(timeout=LIMIT)
    size = dist.get_world_size()
    _leave()
    return [value.detach() for value in module.parameters()], size


def test_training_takes_a_newcomer(fresh_pool):
    pool = _pool(fresh_pool, 2, 1)
    _start(pool, {0, 1}, _train, False)
    time.sleep(0.5)
    _start(pool, {2}, _train, True)
    results = pool.collect()
    for parameters, size in results.values():
        assert size == 3
        for a, b in zip(parameters, results[0][0], strict=True):
            same_bits(a, b, "a parameter")
