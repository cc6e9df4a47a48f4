"""Tests groups that change members: a newcomer joins, a member dies, and PyTorch's shrink_group.

    python tools/smoke_generations.py

It starts three processes. Two create a group and call admit(), and the third joins it. Then the
second is killed, and the survivors shrink the group. check_torch_versions.py runs it on each
version of torch, because all of this depends on how torch.distributed stores its groups. It raises
at the first wrong result.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import torch_ringdist

LIMIT = timedelta(seconds=30)
VICTIM = 1


def sums_are_right(size: int) -> None:
    """Checks sums of the default group, and of a group made from it."""
    for group in (None, dist.new_group(timeout=LIMIT)):
        tensor = torch.full((1000,), dist.get_rank() + 1.0)
        dist.all_reduce(tensor, group=group)
        expected = torch.full_like(tensor, size * (size + 1) / 2)
        assert torch.equal(tensor, expected), tensor
    ranks = [None] * size
    dist.all_gather_object(ranks, dist.get_rank())
    assert ranks == list(range(size)), ranks


def until_an_error() -> None:
    try:
        while True:
            dist.all_reduce(torch.ones(3))
    except dist.DistNetworkError:
        return


def serve(number: int, port: int) -> None:
    if number < 2:
        store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
        dist.init_process_group("ringdist", store=store, rank=number, world_size=2, timeout=LIMIT)
        sums_are_right(2)
        address = torch_ringdist.admit()
        assert address == f"127.0.0.1:{port}", address
        until_an_error()
        _, report = torch_ringdist.shrink(timeout=LIMIT)
        assert (report.stayed, report.joined, report.lost) == ((0, 1), (2,), ()), report
    else:
        time.sleep(1)
        _, joined = torch_ringdist.join(f"127.0.0.1:{port}", timeout=LIMIT)
        assert joined == torch_ringdist.JoinReport(1, (2,)), joined
    assert dist.get_rank() == number, dist.get_rank()
    sums_are_right(3)
    if number == VICTIM:
        os.kill(os.getpid(), signal.SIGKILL)
    until_an_error()
    _, report = torch_ringdist.shrink(timeout=LIMIT)
    assert (report.stayed, report.joined) == ((0, 2), ()), report
    assert [lost.rank for lost in report.lost] == [VICTIM], report
    sums_are_right(2)
    if hasattr(dist, "shrink_group"):
        if dist.get_rank() == 0:
            group = dist.shrink_group([1])
            tensor = torch.ones(3)
            dist.all_reduce(tensor, group=group)
            assert torch.equal(tensor, torch.ones(3)), tensor
        else:
            time.sleep(1)
    else:
        dist.destroy_process_group()


def main() -> int:
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=serve, args=(i, server.port)) for i in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        process.kill()
    codes = [process.exitcode for process in processes]
    assert codes == [0, -signal.SIGKILL, 0], codes
    print("newcomers, losses: good")
    return 0


if __name__ == "__main__":
    sys.exit(main())
