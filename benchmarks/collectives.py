"""Time a collective over ringdist against another backend, side by side in the same processes.

    python benchmarks/collectives.py                 allreduce, 8 B to 64 MiB, 2 ranks, against gloo
    python benchmarks/collectives.py --operation all_to_all --sizes 1K 1M 64M
    python benchmarks/collectives.py --world-size 4 --json out.json --plot out.png
    RINGDIST_ALGORITHM=direct python benchmarks/collectives.py --sizes 8 4K 64K

A size is that of the longest tensor of a rank: a reduce-scatter's input, an all-gather's output.
It starts its own ranks on this machine, one compute thread each. Every repetition times both
backends one after the other, and changes which of them comes first, so that whatever else this
machine does meets both alike; their ratio means more than either time. Each rank's buffer is
written anew before each operation, as a backward pass would, and all ranks start together. Results
are checked once per size. Run it on a quiet machine: one foreign busy core changes small messages
tenfold.
"""

from __future__ import annotations

import argparse
import functools
import gc
import pickle
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import ranks
import report
import torch
import torch.distributed as dist
from operations import OPERATIONS, Operation

SIZES = "8 64 256 1K 4K 16K 64K 256K 1M 4M 16M 64M"
BOUNDS_FROM = 1 << 16  # below, Python's own overhead is what the bounds would show
MIN_REPETITIONS, MAX_REPETITIONS = 20, 1000
WARM_UP = 200_000_000  # ns, or ten rounds


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sizes = [report.parse_size(size) for size in SIZES.split()]
    add = parser.add_argument
    names = ", ".join(OPERATIONS)
    add("--operation", choices=OPERATIONS, default="all_reduce", metavar="NAME", help=names)
    add("--world-size", type=int, default=2, metavar="N", help="ranks to start (default: 2)")
    add("--sizes", type=report.parse_size, nargs="+", default=sizes, help=f"default: {SIZES}")
    add("--repeat", type=int, metavar="N", help="repetitions; default: as many as --seconds allow")
    add("--seconds", type=float, default=2.0, help="per size and backend (default: 2)")
    add("--backend", default="ringdist", help="the one to judge (default: ringdist)")
    add("--baseline", default="gloo", help="the one to compare with (default: gloo)")
    add("--json", type=Path, metavar="FILE", help="also write all figures there, in nanoseconds")
    add("--plot", type=Path, metavar="FILE.png", help="also draw them (needs matplotlib)")
    args = parser.parse_args()
    if args.world_size < 2:
        parser.error("--world-size: expected at least 2")
    return args


@dataclass
class Bench:
    """One rank's part of the benchmark."""

    rank: int
    world: int
    barrier: ranks.SpinBarrier
    tcp: ranks.TcpRing
    ours: dist.ProcessGroup
    baseline: dist.ProcessGroup

    def measure(
        self, make: type[Operation], size: int, seconds: float, repeat: int | None
    ) -> report.Row:
        parts = max(1, size // 4 // self.world)
        operation = make(parts * self.world, self.rank, self.world)
        for group in (self.ours, self.baseline):
            operation.check(group)
        count = repeat or self.choose_count(operation, seconds)
        calls: dict[str, Callable[[], object]] = {
            "ours": functools.partial(operation.run, self.ours),
            "baseline": functools.partial(operation.run, self.baseline),
        }
        bounds = {}
        if size >= BOUNDS_FROM:
            bounds["scale"] = functools.partial(operation.input.mul_, 1.0)
            bounds["tcp"] = functools.partial(self.tcp.exchange, int(size * operation.wire))
        orders = [{**calls, **bounds}, {**dict(reversed(calls.items())), **bounds}]
        samples: dict[str, list[int]] = {name: [] for name in orders[0]}
        gc.disable()
        for turn in range(count):
            for name, call in orders[turn % 2].items():
                samples[name].append(self.time(operation, call))
        gc.enable()
        times = {name: report.Times.of(self.slowest(taken)) for name, taken in samples.items()}
        both = times["ours"], times["baseline"]
        wire = int(2 * (self.world - 1) / self.world * size * operation.wire)
        bounds_of = times.get("scale"), times.get("tcp")
        return report.Row(size, count, *both, *bounds_of, operation.target, wire)

    def time(self, operation: Operation, call: Callable[[], object]) -> int:
        operation.input.fill_(1)  # sums of sums would soon be infinite
        self.barrier.wait()
        start = time.perf_counter_ns()
        call()
        return time.perf_counter_ns() - start

    def choose_count(self, operation: Operation, seconds: float) -> int:
        """As many repetitions as fit; the same on all ranks. It warms both backends up, too."""
        start = time.perf_counter_ns()
        spent = rounds = 0
        while rounds < 10 and spent < WARM_UP:
            for group in (self.ours, self.baseline):
                self.time(operation, functools.partial(operation.run, group))
            [spent] = self.slowest([time.perf_counter_ns() - start])
            rounds += 1
        fitting = int(2 * seconds * 1e9 * rounds / spent)
        return max(MIN_REPETITIONS, min(MAX_REPETITIONS, fitting))

    def slowest(self, values: list[int]) -> list[int]:
        """Each value's maximum over the ranks."""
        most = torch.tensor(values)
        dist.all_reduce(most, dist.ReduceOp.MAX, group=self.baseline)
        return most.tolist()


def run_rank(
    rank: int, world: int, port: int, barrier: Path, args: argparse.Namespace, result: Path
) -> None:
    torch.set_num_threads(1)
    limit = timedelta(seconds=60)
    store = dist.TCPStore("127.0.0.1", port, world, is_master=rank == 0, timeout=limit)
    dist.init_process_group(args.baseline, store=store, rank=rank, world_size=world, timeout=limit)
    bench = Bench(
        rank,
        world,
        ranks.SpinBarrier(barrier, rank, world),
        ranks.TcpRing(dist.PrefixStore("bench", store), rank, world),
        dist.new_group(backend=args.backend, timeout=limit),
        dist.group.WORLD,
    )
    about = report.environment(args.operation, world, args.backend, args.baseline)
    rows = []
    if rank == 0:
        print(report.header(about), flush=True)
    for size in args.sizes:
        if rank == 0 and sys.stderr.isatty():
            text = f"measuring {report.size_text(size)} ..."
            print(text, end="\r", file=sys.stderr, flush=True)
        operation = OPERATIONS[args.operation]
        rows.append(bench.measure(operation, size, args.seconds, args.repeat))
        if rank == 0:
            print(report.line(rows[-1]), flush=True)
    if rank == 0:
        print(report.footer(rows))
        result.write_bytes(pickle.dumps((about, rows)))
    dist.destroy_process_group()


def main() -> int:
    args = parse_arguments()
    if args.backend == "ringdist":
        try:
            import torch_ringdist

            torch_ringdist.info()
        except ImportError as error:
            print(f"{error}\n`make bench` builds it, and then runs this", file=sys.stderr)
            return 1
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result")
        ranks.launch(args.world_size, run_rank, args, result)
        about, rows = pickle.loads(result.read_bytes())
    if args.json:
        report.save_json(args.json, about, rows)
    if args.plot:
        try:
            report.save_plot(args.plot, about, rows)
        except ImportError as error:
            print(f"no picture, {error}: pip install matplotlib", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
