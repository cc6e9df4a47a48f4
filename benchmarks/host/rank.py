"""One rank of a launch: `python -m benchmarks.host.rank PLAN.json`.

The environment has RANK or mpirun's variables. Rank 0 writes the results.
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import time
import warnings
from pathlib import Path

import torch
import torch.distributed as dist

from benchmarks.host import peers, placement
from benchmarks.host.flags import Flags
from benchmarks.host.operations import OPERATIONS, Operation
from benchmarks.host.plan import Plan
from benchmarks.ranks import SpinBarrier
from torch_ringdist import shared_memory

BLOCKS = 4  # blocks of repetitions, with a measurement of the placement before and after each
MIN_REPETITIONS, MAX_REPETITIONS = 8, 2000
WARM_UP = 5


class Rank:
    """Times every peer once in each repetition, in turns. A sample is the time of the slowest rank.

    The order of peers is random in each repetition, and equal on all ranks. It matters because
    cache contents that a peer leaves behind affect the next small operation.
    """

    def __init__(self, plan: Plan, rank: int) -> None:
        self._plan = plan
        self._rank = rank
        self._barrier = SpinBarrier(Path(plan.barrier), rank, plan.world)
        plays = rank < 2 <= plan.world
        self._flags = Flags(Path(plan.flags), first=rank == 0) if plays else None
        self._calls = peers.make(plan.peers)
        self._random = random.Random(0)

    def run(self) -> list[dict]:
        return [
            cell
            for name in self._plan.operations
            for size in (self._plan.sizes if OPERATIONS[name].sized else [0])
            for cell in self._measure(name, size)
        ]

    def _measure(self, name: str, size: int) -> list[dict]:
        """Returns a dictionary per block."""
        elements = max(1, size // 4 // self._plan.world) * self._plan.world
        operations = self._operations(name, elements)
        self._check(operations)
        count = self._choose_count(operations)
        blocks = []
        before = placement.measure(self._barrier, self._flags)
        for _ in range(BLOCKS):
            gc.disable()
            samples = self._block(operations, max(1, count // BLOCKS))
            gc.enable()
            after = placement.measure(self._barrier, self._flags)
            kinds = {placement.classify(before), placement.classify(after)}
            blocks.append(
                {
                    "operation": name,
                    "bytes": size,
                    "hop_ns": [before, after],
                    "placement": kinds.pop() if len(kinds) == 1 else "moved",
                    "samples_ns": {peer: self._slowest(taken) for peer, taken in samples.items()},
                }
            )
            before = after
        return blocks

    def _operations(self, name: str, elements: int) -> dict[str, Operation]:
        """Returns operations by peer, because one peer has tensors of its own."""
        made = OPERATIONS[name](elements, self._rank, self._plan.world)
        operations = dict.fromkeys(self._calls, made)
        if peers.SHARED in operations:
            with shared_memory():
                operations[peers.SHARED] = OPERATIONS[name](elements, self._rank, self._plan.world)
        return operations

    def _check(self, operations: dict[str, Operation]) -> None:
        for peer, call in self._calls.items():
            if peer in peers.MOVE_NOTHING:
                continue
            operation = operations[peer]
            operation.prepare()
            self._barrier.wait()
            call(operation)
            if not operation.is_right():
                raise SystemExit(f"{peer}: {type(operation).__name__} gave a wrong result")

    def _block(self, operations: dict[str, Operation], count: int) -> dict[str, list[int]]:
        samples: dict[str, list[int]] = {peer: [] for peer in self._calls}
        order = list(self._calls)
        for _ in range(count):
            self._random.shuffle(order)
            for peer in order:
                samples[peer].append(self._time(operations[peer], peer))
        return samples

    def _time(self, operation: Operation, peer: str) -> int:
        operation.input.fill_(1)  # written like a gradient in a backward pass
        call = self._calls[peer]
        self._barrier.wait()
        start = time.perf_counter_ns()
        call(operation)
        return time.perf_counter_ns() - start

    def _choose_count(self, operations: dict[str, Operation]) -> int:
        """Returns the number of repetitions that fit, equal on all ranks. It also warms up all
        peers."""
        start = time.perf_counter_ns()
        self._block(operations, WARM_UP)
        [spent] = self._slowest([time.perf_counter_ns() - start])
        fitting = int(self._plan.seconds * 1e9 * WARM_UP / spent)
        return max(MIN_REPETITIONS, min(MAX_REPETITIONS, fitting))

    def _slowest(self, values: list[int]) -> list[int]:
        most = torch.tensor(values)
        dist.all_reduce(most, dist.ReduceOp.MAX)
        return most.tolist()


def main() -> None:
    plan = Plan.load(Path(sys.argv[1]))
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("RANK", "0")))
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FutureWarning)
    store = dist.TCPStore("127.0.0.1", plan.port, plan.world, rank == 0, timeout=peers.LIMIT)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=plan.world, timeout=peers.LIMIT
    )
    blocks = Rank(plan, rank).run()
    if rank == 0:
        Path(plan.result).write_text(json.dumps(blocks))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
