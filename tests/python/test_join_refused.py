"""Newcomers that cannot join, and groups that accept none. The members must not be disturbed."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.rank import Raised, Ranks, caught, init, store_for
from support.store import ForwardingStore
from test_join import (
    Reports,
    _found,
    _join,
    _join_and_wait,
    _member,
    _newcomer,
    _pool,
    _sum_until,
)
from test_shrink import _everything_works, _leave, _run, _start, _sum_is_right

import torch_ringdist
from torch_ringdist import _generation
from torch_ringdist import _join as _join_module


def _refused(**named: Any) -> Raised | None:
    return caught(_join, **named)


def _refused_for_its_options() -> Raised | None:
    return _refused(options=torch_ringdist.Options(segment_bytes=65536))


def _count_sums(seconds: float) -> int:
    """Sums for at least that time, equally often on all ranks. Raises if one fails."""
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


@pytest.mark.parametrize(
    "note", ["gloo", "cpu:gloo,cuda:ringdist", "", "ringdist\n", "cpu:ringdist,cpu:x", "a:b:c"]
)
def test_the_store_does_not_choose_the_backend(note: str):
    with pytest.raises(torch_ringdist.ArgumentError, match="join: the group is to have the"):
        _join_module._checked_backend(note)
    for good in ("ringdist", "cpu:ringdist", "cpu:ringdist,cuda:ringdist"):
        assert _join_module._checked_backend(good) == good


@pytest.mark.parametrize("address", ["", "host", "host:x", "host:" + "9" * 5000, "\x1b:"])
def test_an_address_of_a_member_is_checked(address: str):
    with pytest.raises(dist.DistBackendError, match="a member has sent"):
        _generation.connect(address, timedelta(seconds=1))


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


def _admit(most: int) -> None:
    torch_ringdist.admit(job=Ranks.launch.prefix, max_ranks=most)


def _come_if_there_is_room(size: int) -> Raised | Reports:
    return caught(_join, timeout=timedelta(seconds=12)) or _member(size)


def test_no_more_come_than_there_is_room_for(fresh_pool):
    pool = _pool(fresh_pool, 2, 2)
    _run(pool, {0, 1}, _admit, 3)
    _start(pool, {0, 1}, _member, 3)
    _start(pool, {2, 3}, _come_if_there_is_room, 3)
    outcomes = pool.collect()
    refused = {rank: one for rank, one in outcomes.items() if isinstance(one, Raised)}
    [(rank, error)] = refused.items()
    assert "the group has 3 ranks, which is the most" in error.text, error
    assert [one.joined for one in outcomes[0]] == [(2,)], outcomes
    _run(pool, set(range(4)) - {rank}, _leave)


class _StoreThatHangs(ForwardingStore):
    """A store that never answers writes of a new generation, as if its host had lost power."""

    def add(self, key: str, amount: int) -> int:
        if "ringdist/generation/" in key:
            time.sleep(600)
        return super().add(key, amount)


def _shrink_at_a_store_that_hangs() -> Raised | None:
    Ranks.store = _StoreThatHangs(Ranks.store)
    _found(2)
    while not caught(dist.all_reduce, torch.ones(3)):  # until a newcomer arrives
        pass
    return caught(torch_ringdist.shrink, timeout=timedelta(seconds=7))


def test_a_store_that_hangs_does_not_hold_shrink_up(fresh_pool):
    pool = fresh_pool(3, init=False)
    _start(pool, {0, 1}, _shrink_at_a_store_that_hangs)
    _start(pool, {2}, _join_and_wait)
    for error in pool.collect(without=(2,)).values():
        assert error is not None and "DistBackendError" in error.kinds, error
        assert "the store does not answer" in error.text, error


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
        (torch_ringdist.admit, {"max_ranks": 0}, "ArgumentError", "must be at least 1, got 0"),
        (torch_ringdist.admit, {"max_ranks": "8"}, "TypeError", "must be an int or None, got '8'"),
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


def _come_again() -> Raised | None:
    _newcomer(3)
    _leave()
    return caught(_join)


def _go_on_alone() -> Reports:
    """Works with two, then three, then two members."""
    reports = _sum_until(3)
    _everything_works()
    return _sum_until(2, reports)


def test_one_cannot_come_again(fresh_pool):
    pool = _pool(fresh_pool, 2, 1)
    _start(pool, {0, 1}, _go_on_alone)
    _start(pool, {2}, _come_again)
    error = pool.collect()[2]
    assert error is not None and error.kinds[0] == "ArgumentError", error
    assert "was a member of the group before" in error.text, error
    _run(pool, {0, 1}, _leave)


def _of_two_backends() -> Raised | None:
    dist.init_process_group(
        "cpu:ringdist,cuda:gloo",
        store=store_for("mixed"),
        rank=Ranks.rank,
        world_size=Ranks.launch.size,
    )
    _sum_is_right()
    return caught(torch_ringdist.admit)


def test_a_group_of_two_backends_takes_nobody(fresh_pool):
    for error in fresh_pool(2, init=False).run(_of_two_backends):
        assert error is not None and error.kinds[0] == "ArgumentError", error
        assert "admit: group must be one of the backend ringdist alone" in error.text, error
