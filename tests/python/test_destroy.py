"""destroy_process_group() with pending operations: those it aborts, and those it still serves."""

from __future__ import annotations

import os
import signal
import time

import pytest
import torch
import torch.distributed as dist
from support.pool import run_interpreters
from support.rank import Raised, Ranks, caught, new_group

import torch_ringdist

LARGE = 500_000  # too many elements to be sent before a receive is posted


def _group(seconds: float = 110, grace: float = 0.5) -> dist.ProcessGroup:
    group = new_group(seconds, pg_options=torch_ringdist.Options(destroy_grace=grace))
    dist.all_reduce(torch.ones(3), group=group)
    return group


def _late_receiver() -> tuple[float, str]:
    group, got = new_group(110), torch.zeros(LARGE)
    dist.all_reduce(torch.ones(3), group=group)
    begin, error = time.monotonic(), ""
    if dist.get_rank() == 0:
        time.sleep(20)
        dist.recv(got, 1, group=group)
        assert got.eq(3).all()
        dist.destroy_process_group(group)
    else:
        sent = dist.isend(torch.full((LARGE,), 3.0), 0, group=group)
        received = [dist.irecv(torch.empty(5), source, group=group) for source in (0, None)]
        dist.destroy_process_group(group)
        assert sent.is_completed() and sent.is_success(), sent.exception()
        error = str([work.exception() for work in received])
    return time.monotonic() - begin, error


def test_a_send_is_served_and_receives_are_aborted(fresh_pool):
    """Posts the receive after 20 s, when receives have long been aborted."""
    pool = fresh_pool(2)
    _, (after, error) = pool.run(_late_receiver, timeout=100)
    assert after > 10, "it has not waited for the receiver"
    assert error.count("the group was destroyed") == 2, error
    warnings = [line for line in pool.log(1).splitlines() if "was destroyed" in line]
    assert len(warnings) == 1 and "RINGDIST_DESTROY_GRACE" in warnings[0], warnings
    assert "recv from rank 0" in warnings[0] and "recv from any rank" in warnings[0], warnings


def _sender_to_an_aborted_receive() -> Raised | None:
    group, rank, error = _group(), dist.get_rank(), None
    if rank == 1:
        sent = dist.isend(torch.ones(LARGE), 2, group=group)
        dist.isend(torch.ones(LARGE), 1, group=group)  # no rank will receive it
        dist.irecv(torch.empty(4), 0, group=group, tag=5)
        dist.destroy_process_group(group)
        assert sent.is_success(), sent.exception()
        return None
    if rank == 0:
        error = caught(dist.send, torch.ones(LARGE), 1, group=group)
        Ranks.store.set("it has raised", "")
        dist.send(torch.ones(3), 2, group=group)  # the group continues
    else:
        Ranks.store.wait(["it has raised"])
        for source, count in ((1, LARGE), (0, 3)):
            dist.recv(torch.zeros(count), source, group=group)
    dist.destroy_process_group(group)
    return error


def test_a_sender_to_an_aborted_receive_raises_while_others_are_served(fresh_pool):
    error, _, _ = fresh_pool(3).run(_sender_to_an_aborted_receive, timeout=100)
    assert error is not None and error.kinds[0] == "DistNetworkError", error
    assert "rank 1 (pid" in error.text and "it destroys the group" in error.text, error
    assert error.after < 50, error


def _while_an_exception_is_handled() -> tuple[Raised | None, str]:
    group = _group()
    if dist.get_rank() == 0:
        error = caught(dist.recv, torch.zeros(4), 1, group=group)
        dist.destroy_process_group(group)
        return error, ""
    work = dist.all_reduce(torch.ones(4), group=group, async_op=True)
    with pytest.raises(ZeroDivisionError):
        try:
            _ = 1 / 0
        finally:
            dist.destroy_process_group(group)
    return None, str(work.exception())


def test_an_exception_aborts_collectives_too(fresh_pool):
    pool = fresh_pool(2)
    (error, _), (_, own) = pool.run(_while_an_exception_is_handled, timeout=100)
    assert error is not None and "rank 1 ended the group" in error.text, error
    assert "while ZeroDivisionError was handled" in error.text, error
    assert "while ZeroDivisionError was handled" in own
    warnings = [line for line in pool.log(1).splitlines() if "ZeroDivisionError" in line]
    assert len(warnings) == 1 and "all_reduce #2" in warnings[0], warnings


def _beside_a_rank_that_hangs() -> tuple[float, Raised | None]:
    group, error, begin = Ranks.kept, None, time.monotonic()
    if dist.get_rank() == 0:
        error = caught(dist.recv, torch.zeros(4), 1, group=group)
    else:
        # Data for the rank that hangs must not delay the errors of the others.
        dist.isend(torch.ones(100), 2, group=group)
        dist.irecv(torch.zeros(4), 0, group=group)
        dist.destroy_process_group(group)
    return time.monotonic() - begin, error


def _keep() -> None:
    Ranks.kept = _group()


def test_beside_a_rank_that_hangs(fresh_pool):
    pool = fresh_pool(3, environment={"RINGDIST_PEER_TIMEOUT": "300"})
    pool.run(_keep)
    os.kill(pool.processes[2].pid, signal.SIGSTOP)
    pool.start(_beside_a_rank_that_hangs)
    answers = pool.collect(100, without=(2,))
    _, error = answers[0]
    assert error is not None and "rank 1 (pid" in error.text, error
    assert all(after < 50 for after, _ in answers.values()), answers


SCRIPT = """
import sys, torch, torch.distributed as dist
from datetime import timedelta
rank, size, port = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
dist.init_process_group(
    "ringdist", store=store, rank=rank, world_size=size, timeout=timedelta(minutes=10)
)
x = torch.ones(4)
dist.all_reduce(x)
"""
UNWINDS = """
try:
    if rank == 1:
        work = dist.irecv(torch.empty(4), 0)
        raise ValueError("boom")
    dist.recv(x, 1)
finally:
    dist.destroy_process_group()
"""
AT_EXIT = """
import atexit
atexit.register(dist.destroy_process_group)
if rank == 1:
    work = dist.all_reduce(x, async_op=True)
    raise ValueError("boom")
dist.recv(x, 1)
"""


@pytest.mark.parametrize("script", [UNWINDS, AT_EXIT], ids=["finally", "atexit"])
def test_the_exception_is_what_the_user_sees(script: str):
    done = run_interpreters(2, SCRIPT + script, timeout=100, RINGDIST_DESTROY_GRACE="0.5")
    assert [process.returncode for process in done] == [1, 1], done
    assert "ValueError: boom" in done[1].stderr, done[1].stderr
    assert done[1].stderr.count("RINGDIST_DESTROY_GRACE") == 1, done[1].stderr
    assert "DistNetworkError" in done[0].stderr or "DistBackendError" in done[0].stderr
    assert "rank 1" in done[0].stderr, done[0].stderr
