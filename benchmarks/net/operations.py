"""One rank's part of `python -m benchmarks.net`, which starts it on every host.

A round begins with plain sockets, which show the capacity of a link. One rank per host sends to the
next host, in both directions at once and in one. Then each operation runs with each variant, and
the first call of a turn is not timed. Results are checked once, exactly.

Calls follow each other without a pause, as in training, so a time is that of one call in a
sequence. For operations with a root, all ranks begin each call together, because some would run
ahead otherwise. Ranks share clock and memory, because they are on one machine.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist

from benchmarks import ranks, report
from benchmarks.host.operations import OPERATIONS, Operation
from benchmarks.net import wire
from benchmarks.net.groups import LIMIT
from benchmarks.net.job import Job
from benchmarks.net.peers import Peer, peers_of
from benchmarks.net.progress import Progress

PAUSE = 0.2  # seconds before plain sockets, so that the token buckets of all links fill equally
SOCKET_BYTES = 1 << 20  # least bytes to exchange, because fewer pass through the token buckets
SOCKET_CALLS = 3
MAX_CALLS = 300  # limit of calls in a turn
ROOTED = ("broadcast", "reduce", "gather", "scatter")


@dataclass
class Timed:
    """One variant of one operation. Times are nanoseconds of the slowest rank."""

    operation: str
    variant: str
    times: list[int] = field(default_factory=list)
    cpu: float = 0.0  # nanoseconds of all ranks' threads, summed over all timed calls


class Bench:
    """Measures on one rank. All ranks create one and make the same calls."""

    def __init__(self, job: Job, barrier: Path, progress: Progress) -> None:
        self.job, self.progress = job, progress
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.spin = ranks.SpinBarrier(barrier, self.rank, self.world)
        self.hosts = job.ranks.hosts
        self.ring = None
        if job.ranks.is_first(self.rank):
            store = dist.PrefixStore("operations", dist.distributed_c10d._get_default_store())
            host = job.ranks.host_of(self.rank)
            self.ring = ranks.TcpRing(store, host, self.hosts, wire.own_address())
        self.peers = peers_of(job.parsed)
        self.socket_times: dict[str, list[int]] = {"both": [], "one_way": []}
        self.socket_bytes = max(job.bytes, SOCKET_BYTES)

    def run(self) -> dict:
        work = [
            (Timed(operation, peer.variant.text), peer)
            for operation in self.job.operations
            for peer in self.peers
            if peer.serves(operation)
        ]
        counts = []
        for timed, peer in work:
            self.progress.step(f"{timed.operation} {timed.variant}: checking")
            counts.append(self.calls_of_turn(timed.operation, peer))
        gc.disable()
        for number in range(self.job.rounds):
            self.sockets()
            turns = list(zip(work, counts, strict=True))
            for (timed, peer), count in turns if number % 2 == 0 else reversed(turns):
                self.progress.step(f"{timed.operation} {timed.variant}")
                self.turn(timed, peer, count)
        gc.enable()
        return {
            "machine": report.machine(),
            "socket_times": self.socket_times,
            "socket_bytes": 2 * (self.hosts - 1) * self.socket_bytes // self.hosts,
            "timed": [asdict(timed) for timed, _ in work],
        }

    def steps(self) -> int:
        served = [(o, p) for o in self.job.operations for p in self.peers if p.serves(o)]
        return len(served) * (1 + self.job.rounds)

    def tensors(self, operation: str) -> Operation:
        elements = max(1, self.job.bytes // 4 // self.world) * self.world
        return OPERATIONS[operation](elements, self.rank, self.world)

    def calls_of_turn(self, operation: str, peer: Peer) -> int:
        """Checks the result, then returns the number of calls per turn with which all rounds take
        the wanted time."""
        tensors = self.tensors(operation)
        if not peer.is_right(operation, tensors):
            raise SystemExit(
                f"rank {self.rank}: {operation} by {peer.variant.text} gave a wrong result"
            )
        trial = Timed(operation, peer.variant.text)
        self.turn(trial, peer, 2)
        fitting = self.job.seconds * 1e9 / self.job.rounds / max(1, min(trial.times))
        return max(1, min(MAX_CALLS, math.ceil(fitting)))

    def turn(self, timed: Timed, peer: Peer, count: int) -> None:
        tensors = self.tensors(timed.operation)
        peer.prepare(timed.operation, tensors)
        way = self.timed_apart if timed.operation in ROOTED else self.timed
        times, cpu = way(peer.call(timed.operation, tensors), count)
        timed.times += times
        timed.cpu += cpu

    def sockets(self) -> None:
        self.progress.note("plain sockets")
        time.sleep(PAUSE)
        size = self.socket_bytes
        both = lambda: self.ring and self.ring.exchange(size)  # noqa: E731
        one_way = lambda: self.ring and self.ring.one_way(size)  # noqa: E731
        self.socket_times["both"] += self.timed(both, SOCKET_CALLS)[0]
        # Sockets buffer data that is not received yet, so a sender must not run ahead.
        self.socket_times["one_way"] += self.timed_apart(one_way, SOCKET_CALLS)[0]

    def timed(self, call: Callable[[], object], count: int) -> tuple[list[int], float]:
        """Returns the time of each of `count` calls of the slowest rank, after a first one, and all
        ranks' CPU time."""
        dist.barrier()
        ends, cpu = [], 0
        for number in range(count + 1):
            call()
            ends.append(time.monotonic_ns())
            if number == 0:
                cpu = time.process_time_ns()
        cpu = time.process_time_ns() - cpu
        return self.latest(ends).diff().tolist(), self.together(cpu)

    def timed_apart(self, call: Callable[[], object], count: int) -> tuple[list[int], float]:
        """Returns the same with times from the begin of the first rank, without the waiting between
        calls."""
        dist.barrier()
        starts, ends, cpu = [], [], 0
        for number in range(count + 1):
            self.spin.wait()
            before = time.process_time_ns()
            starts.append(-time.monotonic_ns())
            call()
            ends.append(time.monotonic_ns())
            if number > 0:
                cpu += time.process_time_ns() - before
        taken = self.latest(ends) + self.latest(starts)
        return taken[1:].tolist(), self.together(cpu)

    @staticmethod
    def latest(times: list[int]) -> torch.Tensor:
        found = torch.tensor(times)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return found

    @staticmethod
    def together(cpu: int) -> float:
        spent = torch.tensor(float(cpu), dtype=torch.float64)
        dist.all_reduce(spent)
        return float(spent)


def take_ranks_of_mpirun() -> None:
    """Sets the variables of init_process_group from mpirun's, which have other names."""
    for name in ("RANK", "SIZE"):
        if f"OMPI_COMM_WORLD_{name}" in os.environ:
            ours = "WORLD_SIZE" if name == "SIZE" else name
            os.environ[ours] = os.environ[f"OMPI_COMM_WORLD_{name}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--job", type=Job.of, required=True, metavar="JSON")
    add("--barrier", type=Path, required=True, metavar="FILE", help="of zeros, that all share")
    add("--progress", type=Path, required=True, metavar="FILE", help="rank 0 writes there")
    add("--json", type=Path, required=True, metavar="FILE", help="rank 0 writes its results there")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=FutureWarning)  # names that torch renames
    take_ranks_of_mpirun()
    dist.init_process_group("gloo", timeout=LIMIT)
    first = dist.get_rank() == 0
    bench = Bench(args.job, args.barrier, Progress(args.progress if first else None))
    bench.progress.begin(bench.steps())
    found = bench.run()
    if first:
        args.json.write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
