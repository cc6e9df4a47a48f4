"""One rank's part of `python -m benchmarks.choice`, which starts it on every host.

Each round times the group with the planner's choice and a group for each algorithm. The order is
random and equal on all ranks. The first call of a turn is not timed. Ranks begin each call
together.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import time
from pathlib import Path

import torch
import torch.distributed as dist

from benchmarks import ranks, report
from benchmarks.choice.cells import Cell, elements_of
from benchmarks.choice.job import Job
from benchmarks.host.operations import OPERATIONS
from benchmarks.net.groups import LIMIT
from benchmarks.net.progress import Progress
from torch_ringdist import Options

CHOOSES = ""  # stands for the planner's choice instead of an algorithm
TURN = 5e6  # limit of a turn with more than one call, in nanoseconds
MOST_CALLS = 50


class Rank:
    """Measures on one rank. All ranks create one and make the same calls."""

    def __init__(self, job: Job, barrier: Path, progress: Progress) -> None:
        self._job, self._progress = job, progress
        self._rank, self._world = dist.get_rank(), dist.get_world_size()
        self._spin = ranks.SpinBarrier(barrier, self._rank, self._world)
        self._random = random.Random(0)
        names = sorted({name for cell in job.cells for name in cell.algorithms})
        self._groups = {name: self._group(name) for name in (CHOOSES, *names)}

    @staticmethod
    def _group(name: str) -> dist.ProcessGroup:
        options = Options(algorithm=name) if name else None
        return dist.new_group(backend="ringdist", pg_options=options, timeout=LIMIT)

    def run(self) -> dict:
        gc.disable()
        return {"machine": report.machine(), "times": [self._times(one) for one in self._job.cells]}

    def _times(self, cell: Cell) -> dict[str, list[int]]:
        """Returns nanoseconds of each call, from the first rank that begins to the last that
        ends."""
        self._progress.step(f"{cell.operation} {report.size_text(cell.bytes)}")
        names = [CHOOSES, *cell.algorithms]
        tensors = OPERATIONS[cell.operation](
            elements_of(cell.bytes, self._world), self._rank, self._world
        )
        for name in names:
            tensors.prepare()
            tensors.torch(self._groups[name])
            if not tensors.is_right():
                raise SystemExit(f"rank {self._rank}: {cell} by {name!r} gave a wrong result")
        tensors.input.zero_()  # other values overflow in repeated sums
        counts = {}
        for name in names:
            [taken] = self._together(self._turn(tensors, name, 1))
            counts[name] = max(1, min(MOST_CALLS, int(TURN / taken)))
        turns: dict[str, list[tuple[int, int]]] = {name: [] for name in names}
        for _ in range(self._job.rounds):
            for name in self._random.sample(names, len(names)):
                turns[name] += self._turn(tensors, name, counts[name])
        return {name: self._together(of_name) for name, of_name in turns.items()}

    def _turn(self, tensors, name: str, count: int) -> list[tuple[int, int]]:
        """Returns the times at which each call began and ended on this rank."""
        group = self._groups[name]
        tensors.torch(group)
        found = []
        for _ in range(count):
            self._spin.wait()
            begin = time.monotonic_ns()
            tensors.torch(group)
            found.append((begin, time.monotonic_ns()))
        return found

    @staticmethod
    def _together(turns: list[tuple[int, int]]) -> list[int]:
        """Combines the times of all ranks, which share one clock because they are on one
        machine."""
        latest = torch.tensor([(-begin, end) for begin, end in turns])
        dist.all_reduce(latest, dist.ReduceOp.MAX)
        return latest.sum(1).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--job", type=json.loads, required=True, metavar="JSON")
    add("--barrier", type=Path, required=True, metavar="FILE", help="of zeros, that all share")
    add("--progress", type=Path, required=True, metavar="FILE", help="rank 0 writes there")
    add("--json", type=Path, required=True, metavar="FILE", help="rank 0 writes its results there")
    args = parser.parse_args()
    torch.set_num_threads(1)
    job = Job.of(args.job)
    dist.init_process_group("gloo", timeout=LIMIT)
    first = dist.get_rank() == 0
    progress = Progress(args.progress if first else None)
    progress.begin(len(job.cells))
    found = Rank(job, args.barrier, progress).run()
    if first:
        args.json.write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
