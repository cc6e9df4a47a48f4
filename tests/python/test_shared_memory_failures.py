"""Tensors in shared memory when something fails. Data that changed under a reader must not
count, limits are kept, and nothing is left behind."""

from __future__ import annotations

import os
import resource
import signal
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from support.rank import a_new_group_works, caught, new_group, new_store, poll, same_bits
from support.shared import NAME, mappings, read_in_place, reads_in_place, shares_alone
from support.store import wait_for, write

import torch_ringdist


def _files(pid: int | str) -> set[str]:
    """Returns the files behind the shared tensors that a process maps, its own and others'."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:  # the process has ended
        return set()
    return {line.split()[4] for line in lines if NAME in line}


def _busy() -> str:
    with torch_ringdist.shared_memory():
        tensor = torch.ones(1 << 22)
    while not (error := caught(dist.all_reduce, tensor.fill_(1))):
        pass
    text = error.text
    del tensor
    assert poll(lambda: mappings() == 0), f"{mappings()} mappings are left"
    return text


@reads_in_place
@shares_alone
def test_a_rank_that_is_killed(fresh_pool):
    pool = fresh_pool(3)
    pool.start(_busy)
    pids = [process.pid for process in pool.processes]
    assert poll(lambda: all(len(_files(pid)) > 1 for pid in pids)), "nobody reads others'"
    time.sleep(0.3)
    files = _files(pids[0])
    pool.kill(1, signal.SIGKILL)
    for rank, text in pool.collect(20, without=(1,)).items():
        assert "rank 1 (" in text, f"rank {rank}: {text}"
    everybody = [each.name for each in Path("/proc").iterdir() if each.name.isdigit()]
    assert not any(files & _files(pid) for pid in everybody), "somebody holds its memory"


def _set_timeout(group: dist.ProcessGroup, seconds: float) -> None:
    """Sets the timeout of this rank's next operations, now that the group has formed."""
    group._get_backend(torch.device("cpu")).set_timeout(timedelta(seconds=seconds))


def _late(seconds: float) -> None:
    """Lets rank 1 come late to an op of a group that has timed out. Then rank 0 writes its
    tensor, which rank 1 must not use as data."""
    rank = dist.get_rank()
    group = new_group()
    store = new_store()
    with torch_ringdist.shared_memory():
        tensor = torch.zeros(1 << 20)
    for _ in range(3):
        dist.broadcast(tensor, 0, group=group)
        time.sleep(0.003)
    dist.barrier(group)
    if rank == 0:
        wait_for(store, "formed")
        _set_timeout(group, seconds)
        error = caught(dist.broadcast, tensor.fill_(7), 0, group=group)
        assert error and "imed out" in error.text, error
        tensor.fill_(8)
        write(store, "written", "yes")
    else:
        write(store, "formed", "yes")
        wait_for(store, "written")
        error = caught(dist.broadcast, tensor, 0, group=group)
        assert error, f"it got {tensor.unique().tolist()}"
    dist.barrier()
    same_bits(tensor, torch.full_like(tensor, 8.0 if rank == 0 else tensor[0]), "the tensor")
    a_new_group_works()


def test_an_op_that_times_out(pools):
    pools(2).run(_late, 1.0)


def _stopped() -> None:
    """Stops rank 1 while rank 0's messages refer to its tensor. Rank 0's operation times out,
    and it writes its tensor. Rank 1 must not use the new content when it continues."""
    rank = dist.get_rank()
    pids = [None, None]
    dist.all_gather_object(pids, os.getpid())
    group = new_group()
    with torch_ringdist.shared_memory():
        tensor = torch.zeros(1 << 18)
    for _ in range(3):
        dist.broadcast(tensor, 0, group=group)
        time.sleep(0.003)
    before = read_in_place()
    dist.barrier()
    if rank == 0:
        state = Path(f"/proc/{pids[1]}/stat")
        assert poll(lambda: state.read_text().rsplit(")", 1)[1].split()[0] == "T")
        _set_timeout(group, 1.5)
        error = caught(dist.broadcast, tensor.fill_(7), 0, group=group)
        assert error and "imed out" in error.text, error
        assert read_in_place() > before, "nothing was lent: this test tests nothing"
        tensor.fill_(8)
        os.kill(pids[1], signal.SIGCONT)
    else:
        work = dist.broadcast(tensor, 0, group=group, async_op=True)
        os.kill(os.getpid(), signal.SIGSTOP)
        error = caught(work.wait)
        assert error, f"it got {tensor.unique().tolist()}"
    dist.barrier()
    a_new_group_works()


@reads_in_place
def test_a_reader_that_comes_back_discards_what_was_withdrawn(pools):
    pools(2).run(_stopped)


def _without_descriptors() -> None:
    dist.barrier()  # a group that forms needs descriptors, too
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    region = torch_ringdist.shared_memory()  # the import needs descriptors
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with region:
            tensor = torch.ones(1 << 18)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert torch_ringdist.stats()["shared_tensors"] == 0
    for _ in range(3):
        dist.all_reduce(tensor.fill_(1))
    assert tensor[0] == dist.get_world_size()
    with torch_ringdist.shared_memory():
        many = [torch.ones(1 << 14) for _ in range(300)]
    assert torch_ringdist.stats()["shared_tensors"] <= 256
    for each in many[::7]:
        dist.all_reduce(each)
        assert each[0] == dist.get_world_size()
    dist.barrier()


def test_without_descriptors_tensors_are_usual_ones(fresh_pool):
    pool = fresh_pool(2)
    pool.run(_without_descriptors)
    assert pool.log(0).count("no room for more tensors") == 1, pool.log(0)


def _readers_without_descriptors() -> None:
    """Checks that rank 1 gets copies if it cannot map the exports of rank 0."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with torch_ringdist.shared_memory():
        tensor = torch.ones(1 << 18)
        first = torch.ones(1 << 18)
    before = read_in_place()
    for _ in range(30):  # creates the links, and the connection for exports
        dist.broadcast(first, 0)
        time.sleep(0.003)
    assert dist.get_rank() == 1 or read_in_place() > before
    dist.barrier()
    if dist.get_rank() == 1:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    dist.barrier()
    try:
        for _ in range(30):
            dist.broadcast(tensor.fill_(dist.get_rank()), 0)
            time.sleep(0.003)
            assert tensor[0] == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    dist.barrier()


@reads_in_place
def test_a_reader_without_descriptors_is_sent_copies(fresh_pool):
    pool = fresh_pool(2)
    pool.run(_readers_without_descriptors)
    assert "no room for a shared tensor" in pool.log(0), pool.log(0)


def _too_much() -> None:
    with torch_ringdist.shared_memory():
        error = caught(torch.empty, 1 << 46)
        assert error and "RuntimeError" in error.kinds, error
        assert str(4 << 46) in error.text and "left" in error.text, error.text
        tensor = torch.ones(1 << 18)
    dist.all_reduce(tensor)
    assert tensor[0] == dist.get_world_size()


def test_more_than_the_machine_has(pools):
    pools(2).run(_too_much)
