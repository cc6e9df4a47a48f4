"""Newcomers become members of a group that is at work."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import time
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.pool import Pool
from support.rank import Raised, Ranks, caught, init, same_bits, store_for
from test_shrink import _everything_works, _leave, _run, _sum_is_right
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torch_ringdist

LIMIT = timedelta(seconds=30)


def _found(members: int) -> str:
    """Of ranks 0 to members - 1: the default group, which takes newcomers."""
    dist.init_process_group(
        "ringdist",
        store=store_for("default"),
        rank=Ranks.rank,
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


def _sum_until(size: int, reports: Reports | None = None) -> Reports:
    """Sums, through all generations, until all of a group of that size have summed and say so."""
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


def _start(pool: Pool, ranks: set[int], function: Any, *args: Any) -> None:
    for rank in ranks:
        pool.pipes[rank].send((function.__module__, function.__qualname__, args))


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


def _until_one_is_replaced() -> Reports:
    reports = _sum_until(2)  # without the one that is lost
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


def _stand(size: int, rounds: int) -> dict[str, int]:
    """Takes newcomers, and loses one each time, so often; what this process has in the end."""
    for _ in range(rounds):
        _sum_until(size)
        _sum_until(size - 1)
    time.sleep(1.5)  # idle threads end after a second
    return _footprint()


def _footprint() -> dict[str, int]:
    with open("/proc/self/status") as status:
        resident = re.search(r"VmRSS:\s+(\d+)", status.read())
    assert resident
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "KiB": int(resident[1]),
    }


def _visit(size: int) -> None:
    _join()
    with contextlib.suppress(dist.DistNetworkError):
        _sum_until(size)
    os.kill(os.getpid(), signal.SIGKILL)


class _Visitors:
    """Newcomers of whom each ends when it has been a member."""

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
    feet = []
    for _ in range(2):
        _start(pool, {0, 1}, _stand, 3, rounds)
        for _ in range(rounds):
            visitors.one(3)
        feet.append(pool.collect(without=tuple(range(2, pool.size))))
    for rank in (0, 1):
        before, after = feet[0][rank], feet[1][rank]
        print(before, after)
        assert after["descriptors"] <= before["descriptors"], (before, after)
        assert after["threads"] <= before["threads"], (before, after)


def test_one_is_killed_while_it_comes(fresh_pool):
    seed = int(os.environ.get("RINGDIST_TEST_SEED", "1"))
    print("seed", seed)
    pauses = random.Random(seed)
    victims = 4
    pool = _pool(fresh_pool, 2, victims + 1, environment={"RINGDIST_PEER_TIMEOUT": "2"})
    _start(pool, {0, 1}, _member, 3)
    for victim in range(2, 2 + victims):
        # Not of three, or the members are done.
        _start(pool, {victim}, _join_and_wait)
        time.sleep(pauses.uniform(0.15, 0.45))
        pool.kill(victim)
    time.sleep(0.5)
    _start(pool, {2 + victims}, _newcomer, 3)
    reports = pool.collect(without=tuple(range(2, 2 + victims)))
    assert reports[0] == reports[1]
    came = [rank for one in reports[0] for rank in one.joined]
    gone = [lost for one in reports[0] for lost in one.lost]
    assert len(came) == len(gone) + 1, reports
    assert all(lost.rank >= 2 for lost in gone), reports


def _join_and_wait() -> None:
    _join()
    time.sleep(600)


def _find_the_store(size: int) -> Reports:
    """As _member, of a group whose store is lost."""
    reports = _sum_until(2)
    [store] = [one.store for one in reports if one.store]
    assert torch_ringdist.admit(job=Ranks.launch.prefix) == store
    print("store", store)
    return _member(size, reports)


def _join_at(size: int, address: str) -> Reports:
    return _newcomer(size, rendezvous=address)


def test_the_store_is_lost_and_newcomers_find_the_next(fresh_pool):
    pool = fresh_pool(4, init=False, rank0_hosts_store=True)
    _run(pool, {0, 1, 2}, _found, 3)
    _start(pool, {0, 1, 2}, _find_the_store, 3)
    time.sleep(0.3)
    pool.kill(0)
    deadline = time.monotonic() + 20
    while not (found := re.search(r"^store (\S+)$", pool.log(1), re.MULTILINE)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    _start(pool, {3}, _join_at, 3, found[1])
    reports = pool.collect(without=(0,))
    assert reports[1][-1].joined == (2,), reports
    assert reports[3] == [torch_ringdist.JoinReport(reports[1][-1].generation, (2,))]


def _refused(**named: Any) -> Raised | None:
    return caught(_join, **named)


def _refused_for_its_options() -> Raised | None:
    return _refused(options=torch_ringdist.Options(segment_bytes=65536))


def _count_sums(seconds: float) -> int:
    """Sums for that time at least, all alike; raises if one fails."""
    end, count = time.monotonic() + seconds, 0
    while True:
        tensor = torch.tensor([1.0, float(time.monotonic() < end)])
        dist.all_reduce(tensor)
        count += 1
        if tensor[1] == 0:
            return count


def test_others_do_not_notice_one_that_is_refused(fresh_pool):
    pool = _pool(fresh_pool, 2, 1)
    _start(pool, {0, 1}, _count_sums, 1.5)
    _start(pool, {2}, _refused_for_its_options)
    error = pool.collect(without=(0, 1))[2]
    assert error is not None and "segment_bytes=65536" in error.text, error
    assert "the group has options" in error.text, error
    assert all(count > 0 for count in pool.collect(without=(2,)).values())
    _run(pool, {0, 1}, _leave)


def _time_out(job: str) -> Raised | None:
    return _refused(job=job, timeout=timedelta(seconds=1))


def test_where_nobody_admits_there_is_an_error(fresh_pool):
    pool = _pool(fresh_pool, 1, 1)
    error = _run(pool, {1}, _time_out, "another job")[1]
    assert error is not None and error.kinds[0] == "DistBackendError", error
    assert "no group of a job 'another job' takes newcomers" in error.text, error
    assert "torch_ringdist.admit()" in error.text, error


def test_where_all_members_have_ended_there_is_an_error(fresh_pool):
    pool = _pool(fresh_pool, 2, 1)
    _run(pool, {0, 1}, _leave)
    error = _run(pool, {2}, _time_out, pool.launch.prefix)[2]
    assert error is not None and "has not let this process in" in error.text, error


def _bad_arguments() -> None:
    cases: list[tuple[Any, dict[str, Any], str, str]] = [
        (torch_ringdist.join, {"rendezvous": 5}, "TypeError", 'rendezvous must be "host:port"'),
        (torch_ringdist.join, {"rendezvous": "host"}, "ArgumentError", "got 'host'"),
        (torch_ringdist.join, {"rendezvous": ":29500"}, "ArgumentError", "got ':29500'"),
        (torch_ringdist.join, {"rendezvous": "h:99999"}, "ArgumentError", "got 'h:99999'"),
        (torch_ringdist.join, {"timeout": 5}, "TypeError", "timeout must be a datetime.timedelta"),
        (torch_ringdist.join, {"timeout": timedelta(0)}, "ArgumentError", "above 0, or None"),
        (torch_ringdist.join, {"options": {}}, "TypeError", "options must be a torch_ringdist.Op"),
        (torch_ringdist.join, {"job": 3}, "TypeError", "job must be a str, got int"),
        (torch_ringdist.admit, {}, "ArgumentError", "there is no default group yet"),
    ]
    for function, given, kind, text in cases:
        if function is torch_ringdist.join:
            given = {"rendezvous": Ranks.store, **given}
        error = caught(function, **given)
        assert error is not None and error.kinds[0] == kind and text in error.text, (given, error)
    init()
    _sum_is_right()
    error = caught(torch_ringdist.join, Ranks.store)
    assert error is not None and "is in a default group already" in error.text, error
    error = caught(torch_ringdist.admit, 3)
    assert error is not None and "job must be a str, got int" in error.text, error
    gloo = dist.new_group(backend="gloo")
    dist.barrier(gloo)
    _leave()
    dist.init_process_group(
        "gloo", store=store_for("gloo"), rank=Ranks.rank, world_size=Ranks.launch.size
    )
    error = caught(torch_ringdist.admit)
    assert error is not None and error.kinds[0] == "ArgumentError", error
    assert "admit" in error.text and "gloo" in error.text, error


def test_bad_arguments(fresh_pool):
    fresh_pool(2, init=False).run(_bad_arguments)


STEPS = 40


def _train(comes: bool) -> tuple[list[torch.Tensor], int]:
    """The loop of docs/membership.md, which takes losses and newcomers alike."""
    torch.manual_seed(Ranks.rank)
    module = nn.Sequential(nn.Linear(40, 30), nn.Tanh(), nn.Linear(30, 2))
    optimizer = torch.optim.Adam(module.parameters())
    step = 0
    if comes:
        _join()
        model = None
    else:
        model = DistributedDataParallel(module)
    while step < STEPS:
        try:
            if model is None:
                state = [module.state_dict(), optimizer.state_dict(), step]
                dist.broadcast_object_list(state, src=0)
                module.load_state_dict(state[0])
                optimizer.load_state_dict(state[1])
                step = state[2]
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
