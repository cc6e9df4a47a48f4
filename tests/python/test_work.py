"""Guarantees of a Work for every holder, and for every way to query it."""

from __future__ import annotations

import os
import time

import pytest
import torch
import torch.distributed as dist
from support.rank import caught, new_group, poll, same_bits


def _in_inference_mode() -> None:
    """Results are copied back by threads of ringdist, which are not in that mode."""
    rank, size = dist.get_rank(), dist.get_world_size()
    total = size * (size - 1) / 2
    with torch.inference_mode():
        same = torch.empty(4)
        gathered = dist.all_gather([same] * size, torch.full((4,), float(rank)), async_op=True)
        columns = torch.full((4, 6), float(rank)).t()
        works = [gathered, dist.all_reduce(columns, async_op=True)]
        assert poll(lambda: all(work.is_completed() for work in works))
        for work in works:
            work.wait()
        for _ in range(20):  # the thread that copies back varies
            waited = torch.full((4, 6), float(rank)).t()
            dist.all_reduce(waited)
            same_bits(waited, torch.full((6, 4), total), "waited for")
        sparse = torch.eye(3).to_sparse()
        dist.all_reduce(sparse)
    same_bits(same, torch.full((4,), size - 1.0), "the last rank's part")
    same_bits(columns, torch.full((6, 4), total), "transposed")
    same_bits(sparse.to_dense(), torch.eye(3) * size, "sparse")


@pytest.mark.parametrize("size", [2, 3])
def test_outputs_made_in_inference_mode(pools, size: int):
    pools(size).run(_in_inference_mode)


def _asked_otherwise(how: str) -> None:
    """Uses the Work of a blocking call without a wait, as from C++ or a group's own methods."""
    group = new_group(seconds=20)
    dist.barrier(group=group)
    time.sleep(0.2)  # so that the lane is asleep
    options = dist.AllreduceOptions()
    options.asyncOp = False
    tensor = torch.ones(1000)
    work = group.allreduce([tensor], options)
    if how == "poll":
        assert poll(work.is_completed, 10), "it never ended"
    elif how == "future":
        work.get_future().wait()
    else:
        del work
        assert poll(lambda: bool(tensor[-1] == group.size()), 10), "it was never carried out"
    dist.destroy_process_group(group)


@pytest.mark.parametrize("how", ["poll", "future", "drop"])
def test_a_blocking_call_that_is_not_waited_for(pools, how: str):
    pools(2).run(_asked_otherwise, how)


def _in_a_child(what: str) -> str:
    """Returns the error that a forked child gets from the Work of an unfinished operation."""
    rank, size = dist.get_rank(), dist.get_world_size()
    if what == "sparse":
        work = dist.all_reduce(torch.eye(3).to_sparse(), async_op=True)
        ask = work.wait
    else:
        work = dist.irecv(torch.ones(3), (rank - 1) % size)  # sent below
        ask = work.wait if what == "wait" else lambda: work.get_future().wait()
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writing, str(caught(ask)).encode())
        os._exit(0)
    os.close(writing)
    text = os.read(reading, 4096).decode()
    os.close(reading)
    os.waitpid(child, 0)
    dist.barrier()  # otherwise the other rank's child may find it ended
    if what != "sparse":
        dist.send(torch.ones(3), (rank + 1) % size)
    work.wait()
    return text


@pytest.mark.parametrize("what", ["sparse", "wait", "future"])
def test_a_forked_child_does_not_wait(pools, what: str):
    for text in pools(2).run(_in_a_child, what):
        assert "belongs to the process that this one was forked from" in text, text
