"""A name is in use from a call until its synchronize or poll, however fast the call is."""

from __future__ import annotations

import contextlib
import random
import time
from functools import partial

import pytest
import torch
from support.horovod import initialized
from support.load import busy
from support.rank import caught, in_threads

import torch_ringdist.horovod as hvd

CALLS = 200
# All calls that a test tries with a name.
SECONDS = [
    hvd.allreduce_async,
    hvd.allgather_async,
    hvd.allreduce,
    hvd.reducescatter_async,
    partial(hvd.broadcast_async, root_rank=0),
    partial(hvd.sparse_allreduce_async, op=hvd.Sum),
    partial(hvd.grouped_allreduce_async, op=hvd.Max),
]


def _refused(number: int, name: str) -> bool:
    """Returns True if another call with the name is rejected."""
    function = SECONDS[number % len(SECONDS)]
    tensor = torch.ones(4)
    grouped = isinstance(function, partial) and function.func is hvd.grouped_allreduce_async
    raised = caught(function, [tensor] if grouped else tensor, name=name)
    if raised is None or "ValueError" not in raised.kinds:
        print(f"call {number}: {raised}")
        return False
    return f"name='{name}' is taken" in raised.text


def _twice(calls: int, seed: int) -> int:
    """Returns the number of calls rejected on this rank."""
    with initialized():
        drawn = random.Random(f"{seed} on {hvd.rank()}")
        refused = 0
        for number in range(calls):
            handle = hvd.allreduce_async(torch.ones(4), name="x", op=hvd.Sum)
            time.sleep(drawn.choice([0, 0, 0.001]))  # it may have ended
            refused += in_threads([partial(_refused, number, "x")])[0]  # from another thread
            total = hvd.synchronize(handle)
            assert total.tolist() == [hvd.size()] * 4, (number, total)
        return refused


@pytest.mark.parametrize("others", [0, 3])
@pytest.mark.parametrize("transport", ["shm", "ucx"])
def test_a_second_call_is_refused(fresh_pool, transport: str, others: int):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    pool = fresh_pool(2, environment={"RINGDIST_TRANSPORT": transport})
    with busy(others) if others else contextlib.nullcontext():
        refused = pool.run(_twice, CALLS, seed)
    print(f"refused of {CALLS}: {refused}")
    assert refused == [CALLS] * 2, [pool.log(rank) for rank in range(2)]


def _freed() -> None:
    """Checks that failed calls free their name, and rejected calls do not."""
    with initialized():
        handle = hvd.allreduce_async(torch.ones(2), name="x")
        while not hvd.poll(handle):
            pass
        again = hvd.allreduce_async(torch.ones(2), name="x")
        hvd.synchronize(again)
        hvd.synchronize(handle)
        for _ in range(3):
            shape = 2 + hvd.rank()
            handle = hvd.allreduce_async(torch.ones(shape), name="x")
            while not hvd.poll(handle):
                pass
            again = hvd.allreduce_async(torch.ones(2), name="x")
            raised = caught(hvd.synchronize, handle)
            assert raised is not None and raised.kinds[0] == "HorovodInternalError", raised
            assert "is taken" in str(caught(hvd.allreduce, torch.ones(2), name="x"))
            assert hvd.synchronize(again).tolist() == [1, 1]


def test_poll_frees_a_name(pools):
    pools(2).run(_freed)


def _one_rank_alone() -> None:
    """Checks that attempts of one rank do not affect others, and that process sets have separate
    names."""
    some = hvd.ProcessSet([0, 1])
    with initialized(process_sets=[some]):
        for number in range(50):
            handle = hvd.allreduce_async(torch.ones(2), name="x", op=hvd.Sum)
            if hvd.rank() == number % 3:
                assert _refused(number, "x")
            if some.included():
                assert hvd.allreduce(torch.ones(2), name="x", process_set=some).tolist() == [1, 1]
            assert hvd.synchronize(handle).tolist() == [hvd.size()] * 2


def test_one_rank_alone(pools):
    pools(3).run(_one_rank_alone)


def _in_two_threads(calls: int) -> list[int]:
    """Returns how many of two threads get a name that both use at once, which must be one."""
    with initialized():
        counts = []
        for number in range(calls):
            name = f"race {number % 5}"
            tries = [partial(_try, name)] * 2
            handles = [one for one in in_threads(tries) if one is not None]
            counts.append(len(handles))
            for handle in handles:
                assert hvd.synchronize(handle).item() == hvd.size()
        return counts


def _try(name: str) -> int | None:
    try:
        return hvd.allreduce_async(torch.ones(1), name=name, op=hvd.Sum)
    except ValueError as error:
        assert "is taken" in str(error)
        return None


def test_of_two_threads_one_is_refused(pools):
    for counts in pools(2).run(_in_two_threads, 100):
        assert counts == [1] * 100
