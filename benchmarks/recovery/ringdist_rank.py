"""One rank over ringdist: the loop of docs/how-to/shrink-and-join.md with all_reduces."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

import torch_ringdist
from benchmarks.recovery.answer import Answer, Lost, Shrink, Sums, digest
from benchmarks.recovery.plan import SIZE, Plan
from benchmarks.recovery.processes import READY, Tell, log

TIMEOUT = timedelta(seconds=30)
WARM_UP = 3  # all_reduces that open connections, which a forked child then inherits


class Rank:
    def __init__(self, plan: Plan, rank: int) -> None:
        self._plan, self._rank = plan, rank
        self._sums = Sums(rank)
        self._members = tuple(range(SIZE))
        self._shrinks: list[Shrink] = []
        self._begin(0)

    def _begin(self, generation: int) -> None:
        self._generation, self._done = generation, 0
        self._counts = self._plan.counts(generation)

    def all_reduce(self) -> torch.Tensor:
        total = self._sums.mine(next(self._counts))
        dist.all_reduce(total)
        if wrong := self._sums.wrong(total, self._members):
            raise ValueError(f"generation {self._generation}, all_reduce {self._done + 1}: {wrong}")
        self._done += 1
        return total

    def go_on(self) -> None:
        """Runs all_reduces until the plan's victims are lost."""
        while len(self._members) > len(self._plan.survivors):
            try:
                self.all_reduce()
            except dist.DistNetworkError as error:
                self._shrink(time.monotonic(), str(error))

    def _shrink(self, error_at: float, error: str) -> None:
        log(f"after {self._done} all_reduces of generation {self._generation}: {error}")
        _, report = torch_ringdist.shrink()
        shrunk_at = time.monotonic()
        log(f"after {shrunk_at - error_at:.6f} s: {report}")
        before = self._members
        self._members = tuple(before[one] for one in report.stayed)
        self._shrinks.append(
            Shrink(
                self._generation,
                report.generation,
                tuple(Lost(before[one.rank], one.cause, _pid(one.where)) for one in report.lost),
                self._members,
                report.first_unfinished,
                self._done,
                error,
                error_at,
                shrunk_at,
            )
        )
        self._begin(report.generation)

    def answer(self) -> Answer:
        """Runs the first all_reduce of the last group, which stops the clock, and some more.
        Returns the report."""
        exact = self.all_reduce()
        recovered_at = time.monotonic()
        log(f"the first all_reduce of generation {self._generation} is done")
        rounded = torch.randn(next(self._counts), generator=_generator(self._rank))
        dist.all_reduce(rounded)
        self._make_a_group()
        return Answer(
            self._rank,
            self._members,
            dist.get_rank(),
            recovered_at,
            digest(exact, rounded),
            tuple(self._shrinks),
        )

    def _make_a_group(self) -> None:
        """Creates a group, which needs the store, and uses it."""
        group = dist.new_group(backend="ringdist", timeout=TIMEOUT)
        total = self._sums.mine(1000)
        dist.all_reduce(total, group=group)
        if wrong := self._sums.wrong(total, self._members):
            raise ValueError(f"a new group of generation {self._generation}: {wrong}")


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _pid(where: str) -> int:
    """Returns the process id in a text such as "pid 4711 on host b", or -1."""
    found = re.match(r"pid (\d+)", where)
    return int(found[1]) if found else -1


def live(
    plan: Plan, rank: int, address: str, fork_children: Callable[[], None], tell: Tell
) -> None:
    """Runs a rank. Rank 0 has no address, because it hosts the store and reports its port."""
    os.environ.setdefault("RINGDIST_LOG_LEVEL", "info")
    torch.set_num_threads(1)
    port = int(address) if address else 0
    store = dist.TCPStore(
        "127.0.0.1", port, is_master=rank == 0, wait_for_workers=False, timeout=TIMEOUT
    )
    if rank == 0:
        tell(str(store.port))
    dist.init_process_group("ringdist", store=store, rank=rank, world_size=SIZE, timeout=TIMEOUT)
    one = Rank(plan, rank)
    for _ in range(WARM_UP):
        one.all_reduce()
    fork_children()
    tell(READY)
    one.go_on()
    tell(one.answer())
    dist.destroy_process_group()
