"""Ends of ranks that call operations by name, regular or not."""

from __future__ import annotations

import os
import time

import pytest
import torch
from support.horovod import begin, initialized
from support.pool import free_port, run_interpreters
from support.rank import Ranks, caught

import torch_ringdist.horovod as hvd


def _sum() -> float:
    return hvd.allreduce(torch.ones(1), op=hvd.Sum, name="sum").item()


def _begin() -> None:
    begin()
    assert _sum() == hvd.size()


def _sum_until_it_fails() -> object:
    while True:
        raised = caught(_sum)
        if raised is not None:
            again = caught(_sum)
            assert again is not None and again.kinds[0] == "HorovodInternalError", again
            hvd.shutdown()
            return raised


@pytest.mark.parametrize("victim", [0, 2])
def test_a_kill_is_named_on_all_others(fresh_pool, victim: int):
    pool = fresh_pool(3)
    pool.run(_begin)
    pool.start(_sum_until_it_fails)
    time.sleep(0.2)
    pool.kill(victim)
    for raised in pool.collect(without=(victim,)).values():
        assert raised.kinds[0] == "HorovodInternalError", raised
        assert f"rank {victim}" in raised.text, raised


def _leave_early(leaver: int) -> object:
    begin()
    assert _sum() == hvd.size()
    if hvd.rank() == leaver:
        hvd.shutdown()
        return None
    raised = caught(_sum)
    hvd.shutdown()
    return raised


@pytest.mark.parametrize("leaver", [0, 1])
def test_one_that_leaves_early_is_named_on_all_others(fresh_pool, leaver: int):
    reports = fresh_pool(3).run(_leave_early, leaver)
    for rank, raised in enumerate(reports):
        if rank != leaver:
            assert raised.kinds[0] == "HorovodInternalError", raised
            assert f"rank {leaver}" in raised.text, raised


# Rank 0 sends everything in this op, and may leave as soon as that is sent.
def _broadcast_and_leave() -> float:
    begin()
    out = hvd.broadcast(torch.full((100,), float(hvd.rank())), 0)
    hvd.shutdown()
    return out[0].item()


def test_who_has_given_all_may_leave(fresh_pool):
    pool = fresh_pool(3)
    for _ in range(5):
        assert pool.run(_broadcast_and_leave) == [0.0] * 3


def _times(count: int) -> dict[str, int]:
    used = {}
    for number in range(count):
        with initialized():
            assert _sum() == hvd.size()
        if number == count // 5:
            used = _use()
    deadline = time.monotonic() + 20
    while True:  # idle threads end after a second
        more = {name: number - used[name] for name, number in _use().items()}
        if time.monotonic() > deadline or all(number <= 0 for number in more.values()):
            return more
        time.sleep(0.1)


def _use() -> dict[str, int]:
    return {name: len(os.listdir(f"/proc/self/{name}")) for name in ("fd", "task")}


def test_begins_often(fresh_pool):
    for more in fresh_pool(2).run(_times, 50):
        assert more["fd"] <= 0 and more["task"] <= 0, more


SCRIPT = """
import os, sys
rank, size, port = sys.argv[1:]
os.environ.update(RANK=rank, WORLD_SIZE=size, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
import torch
import torch_ringdist.horovod as hvd
hvd.init()
assert hvd.allreduce(torch.ones(3), op=hvd.Sum)[0] == hvd.size()
print("done", flush=True)
"""


@pytest.mark.parametrize("end", ["", "sys.exit(0)", "hvd.shutdown()", "os._exit(0)"])
def test_a_script_ends_as_it_likes(end: str):
    for done in run_interpreters(3, SCRIPT + end):
        assert (done.returncode, done.stdout.strip()) == (0, "done"), done.stderr


def test_alone_without_a_launcher():
    code = "import torch_ringdist.horovod as hvd; hvd.init(); print(hvd.rank(), hvd.size())"
    [done] = run_interpreters(1, code)
    assert (done.returncode, done.stdout.strip()) == (0, "0 1"), done.stderr


def _at_the_same_time_as_torch() -> None:
    """Checks that torch's default group is separate and not affected."""
    import torch.distributed as dist

    with initialized():
        before = torch.ones(1)
        dist.all_reduce(before)
        assert before.item() == Ranks.launch.size == _sum()
    after = torch.ones(1)
    dist.all_reduce(after)
    assert after.item() == Ranks.launch.size


def test_torchs_default_group_is_left_alone(pools):
    pools(2).run(_at_the_same_time_as_torch)


# Ranks without a launcher's store. Rank 0 has it, and others may still need it.
AGAIN = """
import os, sys, time
rank, size, port = sys.argv[1:]
os.environ.update(RANK=rank, WORLD_SIZE=size, MASTER_ADDR="127.0.0.1", MASTER_PORT=PORT)
import torch
import torch_ringdist.horovod as hvd
for number in range(4):
    if (number + int(rank)) % 2:
        time.sleep(0.3)
    hvd.init()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 2
    hvd.shutdown()
print("done", flush=True)
"""


def test_begins_again_over_a_store_of_rank_0():
    code = AGAIN.replace("PORT)", f"'{free_port()}')")
    for done in run_interpreters(2, code):
        assert (done.returncode, done.stdout.strip()) == (0, "done"), done.stderr
