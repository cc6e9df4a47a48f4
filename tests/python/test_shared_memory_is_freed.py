"""Processes that are killed at any moment leave no shared memory behind. It must neither be in a
file, nor be held by live ranks or children of ranks.

RINGDIST_KILLS=200 kills that often; RINGDIST_KILLS_SEED repeats a run.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from support.pool import Pool
from support.rank import Ranks, init, new_group, poll

SIZE = 3
KILLS = int(os.environ.get("RINGDIST_KILLS", "8"))
SEED = int(os.environ.get("RINGDIST_KILLS_SEED", time.time_ns() % 1_000_000))
LONGEST_LIFE = 1.0  # from before the group is created
GONE_LIMIT = 40.0
# No rank forks if tensors are shared, because a child has its parent's tensors, and may keep them.
FORKS = not os.environ.get("SHARE_TEST_TENSORS")
MAPPED = re.compile(r"^\S+ (\S{4}) \S+ \S+ (\d+) +/memfd:ringdist", re.MULTILINE)


def _mapped(pid: int, mode: str = "") -> set[int]:
    """Returns the inodes of shared memory that a process has mapped, or has mapped with this
    mode."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_text()
    except (OSError, UnicodeDecodeError):
        return set()
    return {int(inode) for access, inode in MAPPED.findall(maps) if mode in access}


def _opened(pid: int) -> set[int]:
    inodes = set()
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                if "/memfd:ringdist" in os.readlink(entry.path):
                    inodes.add(os.stat(entry.path).st_ino)
    return inodes


def _holders(inodes: set[int]) -> dict[int, set[int]]:
    """Returns the processes of this machine that have any of these inodes, and the inodes."""
    pids = [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]
    held = {pid: (_mapped(pid) | _opened(pid)) & inodes for pid in pids}
    return {pid: its for pid, its in held.items() if its}


def _live(seed: int, forks: bool) -> None:
    """Runs operations and groups without end. After an error it does nothing any more."""
    rng = random.Random(seed)  # equal on all ranks
    try:
        if forks:
            _fork_a_sleeper()
        init()
        for number in range(1_000_000):
            group = new_group() if rng.random() < 0.1 else None
            tensor = torch.ones(rng.choice([1, 1000, 300_000, 3_000_000]))
            dist.all_reduce(tensor, group=group)
            dist.broadcast(tensor, rng.randrange(SIZE))
            if forks and number % 5 == 0 and Ranks.rank == 0:
                _fork_a_sleeper()
            if group is not None:
                dist.destroy_process_group(group)
    except Exception as error:
        print(error)
    time.sleep(600)


def _fork_a_sleeper() -> None:
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)


def _kill(pool: Pool, victims: Iterable[int]) -> set[int]:
    """Stops all ranks and kills the victims there. Returns the files that any of them had."""
    pids = [process.pid for process in pool.processes]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    assert poll(lambda: all(_is_stopped(pid) for pid in pids))
    inodes = set().union(*(_mapped(pid) | _opened(pid) for pid in pids))
    for rank in victims:
        pool.kill(rank)
    for rank in set(range(SIZE)) - set(victims):
        os.kill(pids[rank], signal.SIGCONT)
    for rank in victims:
        pool.processes[rank].join(10)
        assert not pool.processes[rank].is_alive()
    return inodes


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.parametrize("kill", range(KILLS))
def test_killed_at_any_moment(fresh_pool, kill: int):
    rng = random.Random(SEED * 1000 + kill)
    victims = rng.sample(range(SIZE), rng.choice([1, SIZE - 1, SIZE]))
    life, forks = rng.random() * LONGEST_LIFE, FORKS and rng.random() < 0.5
    print(f"seed {SEED}: after {life:.3f} s ranks {victims}, {forks=}")
    pool = fresh_pool(SIZE, init=False)
    pool.start(_live, rng.randrange(1 << 30), forks)
    time.sleep(life)
    inodes = _kill(pool, victims)
    print(f"there were {len(inodes)} files of shared memory")
    survivors = [pool.processes[rank].pid for rank in range(SIZE) if rank not in victims]

    def left() -> dict[int, set[int]]:
        # Memory that a survivor can write is its own.
        theirs = set().union(*(_mapped(pid, "rw") for pid in survivors))
        return _holders(inodes - theirs)

    assert poll(lambda: not left(), GONE_LIMIT), f"held by process: {left()}, of {inodes}"
    pool.discard()
    assert poll(lambda: not _holders(inodes)), f"held by process: {_holders(inodes)}"
    assert not [name for name in os.listdir("/dev/shm") if "ringdist" in name]


def _hold() -> int:
    """Keeps a descriptor of the memory in a child. ringdist closes it there, so it is opened
    again."""
    init()
    dist.all_reduce(torch.ones(10))
    mine = next(iter(_mapped(os.getpid(), "rw")))
    (path,) = {
        entry.path
        for entry in os.scandir("/proc/self/fd")
        if "/memfd:ringdist" in os.readlink(entry.path) and os.stat(entry.path).st_ino == mine
    }
    copy = os.dup(int(Path(path).name))
    if os.fork() == 0:
        time.sleep(600)
    os.close(copy)
    return mine


def test_what_stays_is_found(fresh_pool):
    """Tests the measurement itself, with a child that keeps the memory of a killed rank on
    purpose."""
    pool = fresh_pool(2, init=False)
    inodes = set(pool.run(_hold))
    assert inodes <= set().union(*_holders(inodes).values())
    for rank in range(2):
        pool.kill(rank)
        pool.processes[rank].join(10)
    assert len(_holders(inodes)) == 2
    pool.discard()
    assert poll(lambda: not _holders(inodes))
