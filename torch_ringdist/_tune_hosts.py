"""Where the ranks of `tune` run: two processes of this host, or one on each host of a torchrun."""

from __future__ import annotations

import multiprocessing
import os
import signal
import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection

import torch
import torch.distributed as dist

from torch_ringdist._tune_fit import Sample
from torch_ringdist._tune_rank import Prober, Tell, set_aside
from torch_ringdist._units import counted

_LIMIT = timedelta(seconds=120)
_IDLE_LIMIT = timedelta(hours=1)  # of hosts that wait for others to be measured
_MOST_PROCESSES = 8
_MOST_PAIRS = 4  # of hosts


class TuneError(RuntimeError):
    """A process of the measurement failed; the text says why."""


@dataclass(frozen=True)
class Found:
    """Samples of one kind of link."""

    samples: list[Sample]
    rounds: int
    by: str  # who measured


def inside(seconds: float, tell: Tell) -> Found:
    """Processes of this host, which this one starts: two, or as many pairs as it has cores for.

    Raises TuneError.
    """
    cores = len(os.sched_getaffinity(0))
    count = max(2, min(cores, _MOST_PROCESSES) // 2 * 2)
    store = dist.TCPStore("127.0.0.1", 0, None, True, _LIMIT, wait_for_workers=False)
    context = multiprocessing.get_context("spawn")
    near, far = context.Pipe(duplex=False)
    processes = [
        context.Process(target=_process, args=(rank, count, store.port, seconds, far), daemon=True)
        for rank in range(count)
    ]
    # An ignored signal stays so in what is started: who started them ends them.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        for process in processes:
            process.start()
    finally:
        signal.signal(signal.SIGINT, before)
    far.close()
    samples, rounds = _hear(near, tell)
    for process in processes:
        process.join(_LIMIT.total_seconds())
    return Found(
        samples, rounds, f"{counted(count, 'process', 'processes')} on {counted(cores, 'core')}"
    )


def _hear(near: Connection, tell: Tell) -> tuple[list[Sample], int]:
    """Until the first process has its samples or one has failed, or all are gone."""
    try:
        while True:
            kind, *rest = near.recv()
            if kind == "progress":
                tell(*rest)
            elif kind == "failed":
                raise TuneError(rest[0])
            else:
                return rest[0], rest[1]
    except EOFError:
        raise TuneError("the processes that measure inside this host ended") from None


def _process(rank: int, count: int, port: int, seconds: float, to: Connection) -> None:
    """One of those; the first tells what was found, any what went wrong."""
    try:
        set_aside()
        torch.set_num_threads(1)
        store = dist.TCPStore("127.0.0.1", port, None, False, _LIMIT)
        dist.init_process_group(
            "ringdist", store=store, rank=rank, world_size=count, timeout=_LIMIT
        )

        def tell(what: str, share: float) -> None:
            if rank == 0:
                to.send(("progress", what, share))

        found = Prober(range(count), inside=True, limit=_LIMIT).measure(seconds, tell)
        if rank == 0:
            to.send(("found", *found))
        dist.barrier()
        dist.destroy_process_group()
    except Exception as error:
        to.send(("failed", f"process {rank}: {error}"))


@dataclass(frozen=True)
class Launch:
    """What torchrun says of this process: its host, among how many, and whether it is its first."""

    host: int
    hosts: int
    first: bool

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Launch:
        """Without torchrun: one host, this one."""
        host, hosts, place = (
            int(environment.get(name, default))
            for name, default in (("GROUP_RANK", 0), ("GROUP_WORLD_SIZE", 1), ("LOCAL_RANK", 0))
        )
        return cls(host, hosts, place == 0)


@contextmanager
def naming(launch: Launch) -> Iterator[None]:
    """What fails between hosts says on which one it was seen. Raises TuneError."""
    try:
        yield
    except TuneError:
        raise
    except RuntimeError as error:
        raise TuneError(f"host {launch.host} of {launch.hosts}: {error}") from error


class Between:
    """One rank on each host of a torchrun. All of them make one, and call it alike."""

    def __init__(self, launch: Launch) -> None:
        set_aside()
        torch.set_num_threads(1)
        dist.init_process_group(
            "ringdist", rank=launch.host, world_size=launch.hosts, timeout=_LIMIT
        )
        dist.barrier()  # a host that never comes is missed now, not once all has been measured
        self._all = dist.new_group(timeout=_IDLE_LIMIT)
        self._host = launch.host
        self._others = range(1, min(launch.hosts, _MOST_PAIRS + 1))
        self._hosts = launch.hosts

    def measure(self, seconds: float, tell: Tell) -> Found | None:
        """Host 0 with up to four others, one after the other: the median of pairs. None elsewhere
        than on host 0."""
        found, rounds = [], []
        for number, other in enumerate(self._others):
            prober = Prober([0, other], inside=False, limit=_IDLE_LIMIT)
            if self._host not in (0, other):
                continue

            def told(what: str, share: float, number: int = number) -> None:
                tell(what, (number + share) / len(self._others))

            samples, count = prober.measure(seconds / len(self._others), told)
            found.append(samples)
            rounds.append(count)
        if self._host:
            return None
        merged = [
            Sample(one.kind, one.bytes, statistics.median(s.ns for s in of_pairs), one.pairs)
            for of_pairs in zip(*found, strict=True)
            for one in of_pairs[:1]
        ]
        return Found(merged, min(rounds), f"{len(found)} of {self._hosts - 1} pairs of hosts")

    def end(self) -> None:
        """All hosts meet: none goes while another is measured."""
        dist.barrier(self._all)
        dist.destroy_process_group()
