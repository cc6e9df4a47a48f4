"""Starts the ranks of `tune`: processes of this host, or one on each host of a torchrun job."""

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

from torch_ringdist._credentials import has_key
from torch_ringdist._errors import CommandError
from torch_ringdist._generation import open_client
from torch_ringdist._served_store import serve_for_job
from torch_ringdist._tune_fit import Sample
from torch_ringdist._tune_rank import Prober, Tell, set_aside, transport_between
from torch_ringdist._units import counted

_LIMIT = timedelta(seconds=120)
_IDLE_LIMIT = timedelta(hours=1)  # for hosts that wait while others are measured
_MOST_PROCESSES = 8
_MOST_PAIRS = 4  # pairs of hosts


class TuneError(CommandError, RuntimeError):
    """A process of the measurement failed; the message has the reason."""


@dataclass(frozen=True)
class Found:
    """Samples of one kind of link."""

    samples: list[Sample]
    rounds: int
    by: str  # description of the processes that measured


def inside(seconds: float, tell: Tell) -> Found:
    """Measures inside this host with processes that it starts: two, or one pair per two cores up to
    eight processes.

    Args:
        seconds: duration of the measurement.
        tell: called with the progress.

    Raises:
        TuneError: a process failed.
    """
    cores = len(os.sched_getaffinity(0))
    count = max(2, min(cores, _MOST_PROCESSES) // 2 * 2)
    store = serve_for_job("127.0.0.1", 0)
    context = multiprocessing.get_context("spawn")
    near, far = context.Pipe(duplex=False)
    processes = [
        context.Process(target=_process, args=(rank, count, store.port, seconds, far), daemon=True)
        for rank in range(count)
    ]
    # A child inherits an ignored signal, so Ctrl-C reaches only this process, which ends its
    # children.
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
    """Receives from the processes until the first one has sent its samples; raises TuneError if one
    failed or all ended."""
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
    """Runs one measuring process. The first one sends the samples, and any of them sends its
    error."""
    try:
        set_aside()
        torch.set_num_threads(1)
        store = open_client("127.0.0.1", port, has_key(), _LIMIT)
        dist.init_process_group(
            "ringdist", store=store, rank=rank, world_size=count, timeout=_LIMIT
        )

        def tell(what: str, share: float) -> None:
            if rank == 0:
                to.send(("progress", what, share))

        found = Prober(range(count), transport="shm", limit=_LIMIT).measure(seconds, tell)
        if rank == 0:
            to.send(("found", *found))
        dist.barrier()
        dist.destroy_process_group()
    except Exception as error:
        to.send(("failed", f"process {rank}: {error}"))


@dataclass(frozen=True)
class Launch:
    """Position of this process in a torchrun job: its host, the number of hosts, and if it is first
    on it."""

    host: int
    hosts: int
    first: bool

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Launch:
        """Reads the environment; without torchrun there is one host."""
        host, hosts, place = (
            int(environment.get(name, default))
            for name, default in (("GROUP_RANK", 0), ("GROUP_WORLD_SIZE", 1), ("LOCAL_RANK", 0))
        )
        return cls(host, hosts, place == 0)


@contextmanager
def naming(launch: Launch) -> Iterator[None]:
    """Adds the host to errors of the measurement between hosts, and raises them as TuneError."""
    try:
        yield
    except TuneError:
        raise
    except RuntimeError as error:
        raise TuneError(f"host {launch.host} of {launch.hosts}: {error}") from error


class Between:
    """One rank on each host of a torchrun job. All ranks create it and make the same calls."""

    def __init__(self, launch: Launch) -> None:
        self._transport = transport_between()
        set_aside()
        torch.set_num_threads(1)
        dist.init_process_group(
            "ringdist", rank=launch.host, world_size=launch.hosts, timeout=_LIMIT
        )
        dist.barrier()  # reports a missing host before anything is measured
        self._all = dist.new_group(timeout=_IDLE_LIMIT)
        self._host = launch.host
        self._others = range(1, min(launch.hosts, _MOST_PAIRS + 1))
        self._hosts = launch.hosts

    def measure(self, seconds: float, tell: Tell) -> Found | None:
        """Measures host 0 with up to four others in sequence and returns the median of the pairs.

        On hosts other than 0 it returns None.
        """
        found, rounds = [], []
        for number, other in enumerate(self._others):
            prober = Prober([0, other], self._transport, limit=_IDLE_LIMIT)
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
        by = f"{len(found)} of {self._hosts - 1} pairs of hosts, by {self._transport}"
        return Found(merged, min(rounds), by)

    def end(self) -> None:
        """Waits for all hosts, so none leaves while another is measured, then destroys the
        groups."""
        dist.barrier(self._all)
        dist.destroy_process_group()
