"""Every operation between hosts, as a share of what their links can do.

    python -m benchmarks.net --operations all_reduce broadcast --hosts 2 --nproc-per-host 2

starts it through torchrun on every host. Rounds take turns: plain sockets of one rank a host, each
to the next host, which say what a link carries each way; then each operation by each variant, of
which the first repetition is not timed. *of wire*: the least bytes that must leave, or come to, the
busiest host, over what the sockets of the run carry, by the median time. For H hosts of n ranks and
S bytes in the longest tensor of a rank: all_reduce 2 (H - 1) / H S, broadcast S, all_gather and
reduce_scatter (H - 1) / H S, all_to_all n (H - 1) / H S. Results are checked once, exactly.
Calls come back to back, as in training: what an operation takes then, not how long one alone takes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from tqdm import tqdm

from benchmarks import ranks, report
from benchmarks.host.operations import OPERATIONS
from benchmarks.net import wire
from benchmarks.net.allreduce import LIMIT, groups_of
from benchmarks.net.variants import TCP, Variant

PAUSE = 0.2  # seconds before plain sockets are timed: the links' buckets fill alike before all
SIZED = tuple(name for name, operation in OPERATIONS.items() if operation.sized)


def least_bytes(operation: str, size: int, hosts: int, per_host: int) -> float:
    """That pass the busiest host's line, in the way that has more."""
    between = (hosts - 1) / hosts
    return {
        "all_reduce": 2 * between * size,
        "broadcast": float(size),
        "all_gather": between * size,
        "reduce_scatter": between * size,
        "all_to_all": per_host * between * size,
    }[operation]


@dataclass(frozen=True)
class Timed:
    """One variant of one operation. Times in nanoseconds, of the slowest rank."""

    operation: str
    bytes: int
    variant: str
    times: list[int]
    least_bytes: float

    @property
    def median(self) -> float:
        return statistics.median(self.times)

    def of_wire(self, rate: float) -> float:
        """`rate`: bytes per nanosecond that plain sockets carry."""
        return self.least_bytes / rate / self.median

    def line(self, rate: float) -> str:
        words = (self.operation, report.size_text(self.bytes), self.variant)
        times = (report.duration(min(self.times)), report.duration(self.median))
        return "{:15} {:>8}  {:24} {:>10} {:>10}  {:6.2f}".format(
            *words, *times, self.of_wire(rate)
        )


class Bench:
    """One rank's part."""

    def __init__(self, args: argparse.Namespace) -> None:
        dist.init_process_group("gloo", timeout=LIMIT)
        self.args = args
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.hosts = self.world // args.per_host
        self.ring = None
        if self.rank % args.per_host == 0:
            store = dist.PrefixStore("operations", dist.distributed_c10d._get_default_store())
            host = self.rank // args.per_host
            self.ring = ranks.TcpRing(store, host, self.hosts, wire.own_address())
        self.groups = groups_of(args.variants)
        self.socket_times: list[int] = []

    def timed(self, call, count: int) -> list[int]:
        """The time of each of `count` calls but the first, of the slowest rank."""
        dist.barrier()
        ends = []
        for _ in range(count + 1):
            call()
            ends.append(time.monotonic_ns())
        latest = torch.tensor(ends)
        dist.all_reduce(latest, dist.ReduceOp.MAX)
        return latest.diff().tolist()

    def sockets(self, size: int, count: int) -> None:
        time.sleep(PAUSE)
        self.socket_times += self.timed(lambda: self.ring and self.ring.exchange(size), count)

    def rate(self, size: int) -> float:
        """Bytes per nanosecond, each way."""
        moved = 2 * (self.hosts - 1) * size // self.hosts
        return moved / statistics.median(self.socket_times)

    def measure(self, size: int, progress: tqdm) -> list[Timed]:
        self.socket_times.clear()
        found: dict[tuple[str, Variant], list[int]] = {}
        for number in range(self.args.rounds):
            self.sockets(size, self.args.repetitions)
            for operation in self.args.operations:
                for variant in self.args.variants:
                    progress.set_postfix_str(f"{report.size_text(size)} {operation}")
                    elements = size // 4 // self.world * self.world
                    tensors = OPERATIONS[operation](elements, self.rank, self.world)
                    group = self.groups[variant.backend, variant.algorithm]
                    if number == 0:
                        self.check(tensors, operation, variant, group)
                    # What is summed again and again overflows: zeros take as long.
                    tensors.input.zero_()
                    times = self.timed(lambda: tensors.torch(group), self.args.repetitions)  # noqa: B023
                    found.setdefault((operation, variant), []).extend(times)
                    progress.update()
        return [
            Timed(
                operation,
                size,
                variant.text,
                times,
                least_bytes(operation, size, self.hosts, self.args.per_host),
            )
            for (operation, variant), times in found.items()
        ]

    def check(self, tensors, operation: str, variant: Variant, group: dist.ProcessGroup) -> None:
        tensors.prepare()
        tensors.torch(group)
        if not tensors.is_right():
            raise SystemExit(f"rank {self.rank}: {operation} by {variant.text} gave a wrong result")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--operations", nargs="+", choices=SIZED, required=True)
    add("--variants", nargs="+", type=Variant.parse, required=True)
    add("--sizes", nargs="+", type=report.parse_size, required=True, help="of the longest tensor")
    add("--rounds", type=int, required=True)
    add("--repetitions", type=int, default=3, help="in each round")
    add("--links", required=True, help="rate and congestion control; for the report only")
    add("--per-host", type=int, required=True, help="ranks on each host")
    add("--json", type=Path, required=True, metavar="FILE")
    args = parser.parse_args()
    args.variants = [variant for variant in args.variants if variant.backend != TCP]
    if coded := [variant.text for variant in args.variants if variant.codec or variant.cast]:
        parser.error(f"--variants: {coded[0]}: operations are timed without codecs and casts")
    return args


def main() -> None:
    args = parse_arguments()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=FutureWarning)  # of names that torch renames
    bench = Bench(args)
    first = bench.rank == 0
    if first:
        print(f"{bench.hosts} hosts of {args.per_host} rank(s), links of {args.links}")
        titles = ("operation", "bytes", "variant", "minimum", "median", "of wire")
        print("{:15} {:>8}  {:24} {:>10} {:>10}  {}".format(*titles))
    rows = []
    each = len(args.operations) * len(args.variants)
    total = len(args.sizes) * args.rounds * each
    with tqdm(total=total, disable=None if first else True, leave=False) as progress:
        for size in args.sizes:
            of_size = bench.measure(size, progress)
            rate = bench.rate(size)
            if first:
                for row in of_size:
                    tqdm.write(row.line(rate))
                tqdm.write(f"{TCP}: {8 * rate:.3f} Gb/s each way")
            rows += [{**asdict(row), "of_wire": row.of_wire(rate)} for row in of_size]
    if first:
        about = {**report.machine(), "hosts": bench.hosts, "per_host": args.per_host}
        links = dict(zip(("rate", "congestion"), args.links.split(), strict=True))
        args.json.write_text(json.dumps({**about, **links, "rows": rows}, indent=1) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
