"""Ctrl-C while a rank waits for an operation that the others do not call."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.rank import new_group, new_store, same_bits
from support.store import wait_for
from test_monitored_barrier import monitored_barrier

# The group's timeout is 40 s, so an interrupted call ends much earlier.
PROMPT = 15.0


def ones() -> torch.Tensor:
    return torch.ones(5)


# Each blocks until rank 1 comes.
WAITS: dict[str, Callable[[Any], Any]] = {
    "wait": lambda group: dist.all_reduce(ones(), group=group, async_op=True).wait(),
    "wait with a timeout": lambda group: dist.all_reduce(ones(), group=group, async_op=True).wait(
        timedelta(seconds=35)
    ),
    "blocking": lambda group: dist.all_reduce(ones(), group=group),
    "strided": lambda group: dist.broadcast(torch.ones(4, 5).t(), group_src=1, group=group),
    "barrier": lambda group: dist.barrier(group),
    "barrier after an op": lambda group: (
        dist.all_reduce(ones(), group=group, async_op=True),
        dist.barrier(group),
    ),
    "monitored_barrier": lambda group: monitored_barrier(group, 35_000),
    "recv": lambda group: dist.recv(ones(), group_src=1, group=group),
    "list": lambda group: dist.all_reduce_coalesced([ones(), ones()], group=group),
    "sparse": lambda group: dist.all_reduce(ones().to_sparse(), group=group),
}


def interrupted(call: Callable[[], Any]) -> float:
    """Returns the seconds from the signal to the KeyboardInterrupt."""
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    sent = []

    def interrupt() -> None:
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.5, interrupt)
    timer.start()
    try:
        call()
    except KeyboardInterrupt:
        return time.monotonic() - sent[0]
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, old)
    raise AssertionError("it was not interrupted")


def _interrupt(which: str) -> float:
    group = new_group()
    after = interrupted(lambda: WAITS[which](group)) if dist.get_rank() == 0 else 0.0
    dist.barrier()
    group.abort()
    dist.destroy_process_group(group)
    return after


@pytest.mark.parametrize("which", WAITS)
def test_a_wait_is_interrupted(pools, which: str):
    after = pools(2).run(_interrupt, which)[0]
    assert after < PROMPT, after


def _goes_on() -> None:
    group = new_group()
    tensor = torch.full((1000,), float(dist.get_rank() + 1))
    columns = torch.full((30, 20), float(dist.get_rank() + 1)).t()
    if dist.get_rank() == 0:
        work = dist.all_reduce(tensor, group=group, async_op=True)
        interrupted(work.wait)
        interrupted(lambda: dist.all_reduce(columns, group=group))
        dist.barrier()
        work.wait()
    else:
        dist.barrier()
        dist.all_reduce(tensor, group=group)
        dist.all_reduce(columns, group=group)
    dist.barrier(group)
    same_bits(tensor, torch.full((1000,), 3.0), "an op whose wait was interrupted")
    same_bits(columns, torch.full((20, 30), 3.0), "a blocking call that was interrupted")
    dist.destroy_process_group(group)


def test_the_operation_goes_on(pools):
    pools(2).run(_goes_on)


IN_FLIGHT: dict[str, Callable[[], torch.Tensor]] = {
    "dense": ones,
    "sparse": lambda: ones().to_sparse(),
}


def _destroys(which: str) -> float:
    group = new_group()
    tensor, after = IN_FLIGHT[which](), 0.0
    if dist.get_rank() == 0:
        work = dist.all_reduce(tensor, group=group, async_op=True)
        after = interrupted(lambda: dist.destroy_process_group(group))
        dist.barrier()
        work.wait()
    else:
        dist.barrier()
        dist.all_reduce(tensor, group=group)
    same_bits(tensor.to_dense(), torch.full((5,), 2.0), "an op in flight")
    dist.destroy_process_group(group)
    return after


@pytest.mark.parametrize("which", IN_FLIGHT)
def test_what_destroys_a_group_is_interrupted(pools, which: str):
    """It waits for ops in flight. The group is unchanged after the interrupt."""
    after = pools(2).run(_destroys, which)[0]
    assert after < PROMPT, after


def _handled() -> None:
    """Runs a handler that raises nothing during the wait, which then continues. Rank 1 comes only
    after the handler has run."""
    store = new_store()
    old = signal.signal(signal.SIGALRM, lambda *_: store.set("handled", ""))
    dist.barrier()
    if dist.get_rank() == 0:
        timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGALRM))
        timer.start()
        dist.all_reduce(ones())
        timer.join()
    else:
        wait_for(store, "handled")
        dist.all_reduce(ones())
    signal.signal(signal.SIGALRM, old)


def test_handlers_run_during_a_wait(pools):
    pools(2).run(_handled)
