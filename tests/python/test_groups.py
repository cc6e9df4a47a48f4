"""Creating groups, leaving them in all ways, forking, and several groups at once."""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from support.pool import run_interpreters
from support.rank import Raised, Ranks, caught, init, new_group, new_store, same_bits, store_for
from support.store import wait_for

from torch_ringdist import _native


def _sum_works(group=None) -> None:
    size = dist.get_world_size(group)
    tensor = torch.ones(1001)
    dist.all_reduce(tensor, group=group)
    same_bits(tensor, torch.full((1001,), float(size)), "all_reduce")


def _again_and_again(times: int) -> None:
    for _ in range(times):
        init("the same")
        _sum_works()
        dist.destroy_process_group()
        assert not dist.is_initialized()


def test_20_groups_after_each_other_over_one_store(fresh_pool):
    fresh_pool(3, init=False).run(_again_and_again, 20)


def _subsets() -> None:
    rank = dist.get_rank()
    members = [[0, 1, 2], [2, 3, 4], [4, 0], [3, 1], [2], [4, 3, 2, 1, 0]]
    groups = [new_group(ranks=some) for some in members]
    mine = [(g, some) for g, some in zip(groups, members, strict=True) if rank in some]
    for _ in range(3):
        works = []
        for group, some in mine:
            tensor = torch.full((20_000,), float(rank))
            works.append((dist.all_reduce(tensor, group=group, async_op=True), tensor, some))
        for work, tensor, some in works:
            work.wait()
            same_bits(tensor, torch.full((20_000,), float(sum(some))), f"group of {some}")
    for group, some in mine:
        tensor = torch.tensor(float(rank))
        dist.broadcast(tensor, some[-1], group=group)
        assert tensor == some[-1], (some, tensor)
    for group, _ in mine:
        dist.destroy_process_group(group)


def test_groups_of_some_ranks_that_overlap(pools):
    pools(5).run(_subsets)


def _two_timeouts() -> None:
    short, long, store = new_group(seconds=2), new_group(seconds=30), new_store()
    _sum_works(long)
    if dist.get_rank() == 0:
        error = caught(_sum_works, short)
        assert error is not None and "imed out" in error.text and 1.9 < error.after < 20, error
        store.set("it has failed", "")
    else:
        wait_for(store, "it has failed")
    _sum_works(long)
    dist.destroy_process_group(short)
    dist.destroy_process_group(long)


def test_timeouts_are_per_group(pools):
    pools(2).run(_two_timeouts)


def _shut_down_twice() -> None:
    group = new_group()
    _sum_works(group)
    backend = group._get_backend(torch.device("cpu"))
    backend.shutdown()
    backend.shutdown()
    error = caught(dist.all_reduce, torch.ones(3), group=group)
    assert error is not None and "has been destroyed" in error.text, error
    dist.destroy_process_group(group)
    _sum_works()


def test_shutdown_twice(pools):
    pools(2).run(_shut_down_twice)


def _abort() -> Raised:
    group = new_group()
    _sum_works(group)
    if dist.get_rank() == 0:
        # Long enough for the others to be inside their call.
        time.sleep(0.5)
        group._get_backend(torch.device("cpu")).abort()
    error = caught(dist.all_reduce, torch.ones(3), group=group)
    dist.destroy_process_group(group)
    return error


def test_abort_ends_the_group_on_all_ranks(pools):
    errors = pools(3).run(_abort)
    for error in errors:
        assert error is not None and "rank 0 aborted the group" in error.text, error
        assert error.after < 20, error
    for error in errors[1:]:
        assert "Connection closed by peer: rank 0 aborted" in error.text, error


def _leave_early() -> Raised | None:
    group = new_group()
    _sum_works(group)
    if dist.get_rank() == 1:
        dist.destroy_process_group(group)
        return None
    error = caught(dist.all_reduce, torch.ones(3), group=group)
    dist.destroy_process_group(group)
    return error


def test_an_op_without_a_rank_that_left(pools):
    first, _, last = pools(3).run(_leave_early)
    for error in (first, last):
        assert error is not None and "DistNetworkError" in error.kinds, error
        assert "rank 1 " in error.text and "left the group" in error.text, error
        assert "Connection closed by peer: it destroyed the group" in error.text, error
        assert error.after < 20, error


def _debug_wrapper() -> None:
    dist.set_debug_level_from_env()
    init(timeout=timedelta(seconds=30))
    group = new_group()
    _sum_works(group)
    dist.barrier(group=group)
    dist.destroy_process_group()


def test_debug_mode(fresh_pool):
    fresh_pool(2, init=False, environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}).run(_debug_wrapper)


def _fork_during_ops() -> None:
    tensors = [torch.ones(1_000_000) for _ in range(8)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    child = os.fork()
    if child == 0:
        error = caught(dist.all_reduce, torch.ones(3))
        good = error is not None and "forked" in error.text and error.after < 20
        print("child:", error)
        os._exit(0 if good else 1)
    for work, tensor in zip(works, tensors, strict=True):
        work.wait()
        same_bits(tensor, torch.full((1_000_000,), float(dist.get_world_size())), "parent")
    assert os.waitpid(child, 0)[1] == 0
    _sum_works()


def test_fork_with_ops_in_flight(pools):
    pools(3).run(_fork_during_ops)


def _forget_the_parents_group() -> None:
    """Leaves the parent's group. For torch, a forked child is still in it."""
    dist.destroy_process_group()
    Ranks.store = dist.TCPStore("127.0.0.1", Ranks.launch.port, is_master=False)


def _children_make_groups(depth: int) -> None:
    """Forks while operations are in flight. The children do the same, and so do their children."""
    tensors = [torch.ones(1_000_000) for _ in range(4)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    child = os.fork()
    if child == 0:
        signal.alarm(100)
        try:
            _forget_the_parents_group()
            init(f"children {depth} {Ranks.launch.prefix}")
            _sum_works()
            os.kill(os.getpid(), signal.SIGUSR1)  # prints a dump, and kills no process
            _sum_works()
            if depth:
                _children_make_groups(depth - 1)
            dist.destroy_process_group()
            init(f"children, again {depth} {Ranks.launch.prefix}")
            _sum_works()
            dist.barrier()
        except BaseException as error:
            print("child:", repr(error))
            os._exit(1)
        os._exit(0)
    for work in works:
        work.wait()
    assert os.waitpid(child, 0)[1] == 0
    _sum_works()


def test_forked_children_make_groups(fresh_pool):
    pool = fresh_pool(2)
    pool.run(_children_make_groups, 1, timeout=110.0)
    assert "child:" not in pool.log(0) + pool.log(1)


UCX_IN_THE_PARENT = """
import os, sys, torch, torch.distributed as dist, torch_ringdist
rank, size, port = map(int, sys.argv[1:])
def make(name, transport):
    store = dist.PrefixStore(name, dist.TCPStore("127.0.0.1", port, is_master=False))
    dist.init_process_group(
        "ringdist", store=store, rank=rank, world_size=size,
        pg_options=torch_ringdist.Options(transport=transport))
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    dist.destroy_process_group()
    assert tensor.eq(2).all()
for one in ("ucx", "tcp"): make("parents by " + one, one)
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
for one in ("", "tcp"): make("children by " + one, one)
try:
    make("children by ucx", "ucx")
except RuntimeError as error:
    print(error)
"""


def test_a_child_cannot_use_its_parents_ucx():
    """Shared memory and TCP still work there."""
    for done in run_interpreters(2, UCX_IN_THE_PARENT):
        assert done.returncode == 0, done
        assert "forked from one that had opened UCX" in done.stdout, done
        assert "'spawn'" in done.stdout, done


# The notebook's process had a group before it forks the ranks.
NOTEBOOK = """
import sys, multiprocessing as mp, torch, torch.distributed as dist
port = int(sys.argv[3])
def rank(rank, queue):
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("ringdist", store=store, rank=rank, world_size=2)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    queue.put(tensor.tolist())
    dist.destroy_process_group()
dist.init_process_group("ringdist", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.ones(3))
dist.destroy_process_group()
fork = mp.get_context("fork")
queue = fork.Queue()
children = [fork.Process(target=rank, args=(one, queue)) for one in range(2)]
for child in children: child.start()
for child in children: child.join()
print([child.exitcode for child in children], queue.get(), queue.get())
"""


def test_ranks_forked_by_a_process_that_had_a_group():
    [done] = run_interpreters(1, NOTEBOOK)
    assert done.stdout == "[0, 0] [2.0, 2.0, 2.0] [2.0, 2.0, 2.0]\n", done


SETUP = """
import contextlib, os, sys, threading, time, torch, torch.distributed as dist
rank, size, port = map(int, sys.argv[1:])
store = dist.TCPStore("127.0.0.1", port, is_master=False)
dist.init_process_group("ringdist", store=store, rank=rank, world_size=size)
tensor = torch.ones(1000)
dist.all_reduce(tensor)
assert tensor.eq(size).all()
"""

# Rank 1 just ends. There is one run for each ending.
ENDINGS = {
    "with an op that cannot end": "if rank == 0: work = dist.all_reduce(tensor, async_op=True)",
    "with an op in a thread": """
if rank == 0:
    def wait():
        with contextlib.suppress(dist.DistError):  # the process shuts down, or rank 1 has left
            dist.all_reduce(tensor)
    threading.Thread(target=wait, daemon=True).start()
    time.sleep(0.2)
else:
    time.sleep(2)
""",
    "after a fork": """
child = os.fork()
if child == 0:
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
dist.all_reduce(tensor)
""",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_exit(ending: str):
    code = f"{SETUP}{ENDINGS[ending]}\nprint(time.monotonic())"
    for rank, done in enumerate(run_interpreters(2, code)):
        assert done.returncode == 0, f"rank {rank}: {done}"
        assert _printed(done.stderr) == "", f"rank {rank}: {done.stderr}"
        assert time.monotonic() - float(done.stdout) < 40, f"rank {rank}"


def _printed(text: str) -> str:
    """Returns stderr without PyTorch's own reminder to destroy groups."""
    return "\n".join(line for line in text.splitlines() if "destroy_process_group" not in line)


def test_exit_of_a_rank_that_others_need():
    code = """
if rank == 1: sys.exit(0)
try:
    dist.all_reduce(tensor)
except dist.DistNetworkError as error:
    print(error)
"""
    first, second = run_interpreters(2, SETUP + code)
    assert first.returncode == second.returncode == 0, (first, second)
    assert "rank 1 " in first.stdout and "left the group" in first.stdout, first
    assert "Connection closed by peer: its process exited" in first.stdout, first


def test_fork_after_the_import():
    code = """
import os, sys, torch_ringdist
torch_ringdist.info()
child = os.fork()
sys.argv[1] = "1" if child == 0 else "0"
"""
    [done] = run_interpreters(1, code + SETUP + "dist.destroy_process_group()", size=2)
    assert done.returncode == 0, done


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
def test_nothing_of_ours_is_left_in_dev_shm(pools):
    pools(2).run(_sum_works)
    assert not [name for name in os.listdir("/dev/shm") if "ringdist" in name]


def _send_to_a_rank_that_waits_for_the_store() -> None:
    """A blocking get of its user blocks a rank's client of the store, and nothing else."""
    rank, name = Ranks.rank, f"later {Ranks.launch.prefix}"
    if rank == 1:
        time.sleep(1)  # rank 0 is looking for this rank when its user begins to wait
    group = new_group()
    tensor = torch.full((10,), float(rank))
    if rank == 0:
        Ranks.store.get(name)  # set after the send
        dist.recv(tensor, 1, group=group)
        assert tensor.eq(1).all()
    else:
        dist.send(tensor, 0, group=group)
        Ranks.store.set(name, "sent")
    dist.destroy_process_group(group)


def test_a_send_to_a_rank_that_waits_for_the_store(fresh_pool):
    fresh_pool(2).run(_send_to_a_rank_that_waits_for_the_store)


def _create(store: dist.Store, **options: str):
    """Creates a backend like torch, without the names that torch numbers."""
    size = Ranks.launch.size
    return _native.load().create_backend(
        store, Ranks.rank, size, timedelta(seconds=20), "group", list(range(size)), options
    )


def _fail_to_create(options: dict[str, str]) -> list[str]:
    store, tensor = store_for("retried"), torch.ones(5)
    errors = [""]
    if Ranks.rank == 1:
        errors = [str(caught(_create, store, **options))]
    else:
        group = _create(store)
        errors = [str(caught(lambda: group.allreduce([tensor]).wait()))]
        group.shutdown()
    group = _create(store)
    group.allreduce([tensor]).wait()
    same_bits(tensor, torch.full((5,), float(Ranks.launch.size)), "after another attempt")
    group.shutdown()
    return errors


def test_a_creation_that_fails_on_one_rank_can_be_repeated(fresh_pool):
    others, (error,) = fresh_pool(2).run(_fail_to_create, {"codec": "int5"})
    assert "codec" in error, error
    assert "rank 1 ended the group before its first operation" in others[0], others
