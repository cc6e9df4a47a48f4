"""One rank's part of `python -m benchmarks.net`, which starts it through torchrun.

Each round runs every variant for a while, back to back. The order rotates, so that other load on
the machine affects all variants equally. The first operation of each turn is not timed, because it
begins with a full token bucket and an idle connection.

Ranks share one clock, because they are on one machine. An operation ends when its last rank has
finished, and its time is that since the end of the previous one.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import math
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from tqdm import tqdm

from benchmarks import ranks, report
from benchmarks.net import results, wire
from benchmarks.net.groups import LIMIT, groups_of
from benchmarks.net.results import Measured, Spread
from benchmarks.net.variants import TCP, Variant

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
CASTS = {"fp16": torch.float16, "bf16": torch.bfloat16}
SEED = 1
# Bits by which values may grow. Each repeated sum multiplies them by the world size, and fp32 has a
# range of about 2^128.
GROWTH_BITS = {"fp32": 100, "bf16": 100, "fp16": 10}
MAX_TURN = 1000


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--variants", nargs="+", type=Variant.parse, required=True)
    add("--sizes", nargs="+", type=report.parse_size, required=True, help="bytes")
    add("--dtype", choices=DTYPES, required=True)
    add("--data", type=Path, help="a file of torch.save with a tensor to reduce, repeated to size")
    add("--seconds", type=float, required=True, help="per variant, at least")
    add("--rounds", type=int, required=True, help="at least")
    add("--interface", required=True)
    add("--links", required=True, help="rate and congestion control; for the report only")
    add("--per-host", type=int, required=True, help="ranks on each host")
    add("--json", type=Path, required=True, metavar="FILE")
    return parser.parse_args()


class Runner:
    """Performs a variant's allreduce on one tensor, in place, repeatedly."""

    def __init__(self, variant: Variant, group: dist.ProcessGroup | None, like: torch.Tensor):
        self.variant = variant
        self.world = dist.get_world_size()
        self.group = group
        self.residual = torch.zeros_like(like, dtype=torch.float32) if variant.feeds_back else None
        # Averages, as in training. Backends without AVG sum.
        self.averages = variant.backend == "ringdist" or bool(variant.cast)
        self.op = dist.ReduceOp.AVG if variant.backend == "ringdist" else dist.ReduceOp.SUM
        self.run = self._choose()

    def _choose(self) -> Callable[[torch.Tensor], object]:
        if self.variant.cast:
            return self._cast
        if not self.variant.codec:
            return lambda tensor: dist.all_reduce(tensor, self.op, group=self.group)
        import torch_ringdist

        return lambda tensor: torch_ringdist.all_reduce(
            tensor, self.op, self.group, codec=self.variant.codec, residual=self.residual
        )

    def _cast(self, tensor: torch.Tensor) -> None:
        cast = tensor.to(CASTS[self.variant.cast])
        if self.op == dist.ReduceOp.SUM:
            cast.div_(self.world)
        dist.all_reduce(cast, self.op, group=self.group)
        tensor.copy_(cast)


class TcpRunner:
    """Moves the bytes of the bound, with the interface of Runner."""

    def __init__(self, variant: Variant, ring: ranks.TcpRing):
        self.variant = variant
        self.averages = True
        self.run = lambda tensor: ring.exchange(tensor.nbytes)


class Bench:
    """One rank's part of the benchmark."""

    def __init__(self, args: argparse.Namespace) -> None:
        dist.init_process_group("gloo", timeout=LIMIT)
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.args = args
        store = dist.PrefixStore("bench_net", dist.distributed_c10d._get_default_store())
        self.tcp = ranks.TcpRing(store, self.rank, self.world, wire.own_address())
        self.groups = groups_of(args.variants)
        # One rank per host reads its interface.
        self.counts_bytes = self.rank % args.per_host == 0

    def measure(self, size: int, progress: tqdm) -> list[Measured]:
        dtype = DTYPES[self.args.dtype]
        self.source = make_source(size // dtype.itemsize, dtype, self.rank, self.args.data)
        self.tensor = torch.empty_like(self.source)
        runners = [self.runner(variant) for variant in self.args.variants]
        errors = {runner.variant: self.check(runner) for runner in runners}
        turns = {runner.variant: self.length_of_turn(runner) for runner in runners}
        samples: dict[Variant, list[int]] = {runner.variant: [] for runner in runners}
        traffic = dict.fromkeys(samples, (0, 0, 0))  # bytes sent, bytes received, operations
        enough = self.args.seconds * 1e9
        gc.disable()
        for number in itertools.count():
            # The samples are equal on all ranks, so all make the same choice.
            due = [
                runner
                for runner in runners
                if number < self.args.rounds or sum(samples[runner.variant]) < enough
            ]
            if not due:
                break
            for runner in due if number % 2 else reversed(due):
                variant = runner.variant
                progress.set_postfix_str(f"{report.size_text(size)} {variant.text}")
                taken, moved = self.turn(runner, turns[variant])
                samples[variant] += taken
                traffic[variant] = tuple(map(sum, zip(traffic[variant], moved, strict=True)))
                progress.update(min(sum(taken) / 1e9, progress.total - progress.n))
        gc.enable()
        return [
            self.summary(size, variant, samples[variant], traffic[variant], errors[variant])
            for variant in samples
        ]

    def runner(self, variant: Variant) -> Runner | TcpRunner:
        if variant.backend == TCP:
            return TcpRunner(variant, self.tcp)
        return Runner(variant, self.groups[variant.group], self.tensor)

    def turn(self, runner: Runner | TcpRunner, count: int) -> tuple[list[int], tuple[int, ...]]:
        """Returns the time of each operation, and (bytes sent by all hosts, bytes received,
        operations)."""
        self.tensor.copy_(self.source)
        dist.barrier()
        before = wire.counted(self.args.interface)
        ends = []
        for _ in range(count + 1):
            runner.run(self.tensor)
            ends.append(time.monotonic_ns())
        dist.barrier()  # when all ranks have received, all bytes have been sent
        moved = wire.counted(self.args.interface) - before
        ends = self.over_ranks(ends, dist.ReduceOp.MAX)
        both = [moved.sent, moved.received] if self.counts_bytes else [0, 0]
        sent, received = self.over_ranks(both, dist.ReduceOp.SUM)
        return [end - start for start, end in itertools.pairwise(ends)], (sent, received, count + 1)

    def length_of_turn(self, runner: Runner | TcpRunner) -> int:
        """Returns the number of operations per turn with which --rounds turns take --seconds."""
        taken, _ = self.turn(runner, 2)
        fitting = math.ceil(self.args.seconds * 1e9 / self.args.rounds / min(taken))
        growth = GROWTH_BITS[self.args.dtype] / math.log2(self.world)
        return max(1, min(fitting, MAX_TURN if runner.averages else int(growth)))

    def check(self, runner: Runner | TcpRunner) -> float:
        """Returns the squared error relative to the exact result. Ends the benchmark if it is
        absurd."""
        if isinstance(runner, TcpRunner):
            return 0.0
        exact = self.source.double()
        dist.all_reduce(exact)
        if runner.averages:
            exact /= self.world
        self.tensor.copy_(self.source)
        runner.run(self.tensor)
        got = self.tensor.double()
        error = float((got - exact).square().sum() / exact.square().sum())
        accepted = 1.0 if runner.variant.codec else 1e-3
        bits = zlib.crc32(self.tensor.view(torch.uint8).numpy())
        least = self.over_ranks([bits], dist.ReduceOp.MIN)
        most = self.over_ranks([bits], dist.ReduceOp.MAX)
        if not error < accepted or least != most:
            raise SystemExit(
                f"rank {self.rank}, {runner.variant.text}: relative squared error {error:.3g}, "
                f"expected less than {accepted}; bits {'differ' if least != most else 'are equal'} "
                f"between ranks (data of seed {SEED})"
            )
        return error

    def over_ranks(self, values: list[int], op: dist.ReduceOp) -> list[int]:
        tensor = torch.tensor(values)
        dist.all_reduce(tensor, op)
        return tensor.tolist()

    def summary(self, size: int, variant: Variant, samples, traffic, error: float) -> Measured:
        sent, received, operations = traffic
        hosts = self.world // self.args.per_host
        payload = None
        if self.args.per_host == 1:  # otherwise it depends on the ranks that share a host
            itemsize = self.source.itemsize
            payload = variant.payload(size // itemsize, itemsize, self.world)
        each = operations * hosts
        times = Spread.of(samples)
        return Measured(
            *(size, variant.text, times, len(samples)),
            *(sent / each, received / each, payload, error),
        )


def make_source(count: int, dtype: torch.dtype, rank: int, data: Path | None) -> torch.Tensor:
    """Returns values that differ between ranks, from the data file or Gaussian."""
    if data is None:
        generator = torch.Generator().manual_seed(SEED + rank)
        return torch.randn(count, generator=generator).mul_(1e-3).to(dtype)
    given = torch.load(data, weights_only=True).flatten().to(dtype)
    return given.roll(rank * 997).repeat(-(-count // given.numel()))[:count].contiguous()


def main() -> None:
    args = parse_arguments()
    torch.set_num_threads(1)
    bench = Bench(args)
    rate, congestion = args.links.split()
    about = {
        **report.machine(),
        "hosts": bench.world // args.per_host,
        "per_host": args.per_host,
        "rate": rate,
        "congestion": congestion,
        "dtype": args.dtype,
        "seed": SEED,
    }
    rows = []
    if bench.rank == 0:
        print(results.header(about), flush=True)
    total = args.seconds * len(args.sizes) * len(args.variants)
    form = "{l_bar}{bar}| {n:.0f}/{total:.0f} s {postfix}"
    silent = None if bench.rank == 0 else True  # None disables the bar if stderr is not a terminal
    with tqdm(total=total, disable=silent, leave=False, bar_format=form) as progress:
        for size in args.sizes:
            of_size = results.compare(bench.measure(size, progress))
            rows += of_size
            if bench.rank == 0:
                tqdm.write(results.titles(size))
                for row in of_size:
                    tqdm.write(results.line(row))
                    if row.measured.variant == TCP and row.measured.payload:
                        tqdm.write(results.bound(row))
    if bench.rank == 0:
        results.save(args.json, about, rows)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
