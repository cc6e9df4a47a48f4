"""Time a training step with DDP on one host: gloo, ringdist, and ringdist with shared tensors.

    python -m benchmarks.step                              a network of 10 M parameters, 2 ranks
    python -m benchmarks.step --ranks 4 --seconds 60
    python -m benchmarks.step --parameters 1M --batch 256 --json out.json

A step is forward, backward with DDP's allreduces, and SGD, of a network of three linear layers. All
backends train in the same processes, each with its own copy of the network. They take turns of one
step, so that other load on this machine affects all of them equally. So ratios are more reliable
than times. A sample is the time of the slowest rank.

The contender ringdist-shared creates its DDP, and runs the first steps, under
torch_ringdist.shared_memory(). The contender alone has no DDP and shows the cost of a step without
communication.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from benchmarks import report as common
from benchmarks.ranks import SpinBarrier, launch

CONTENDERS = ("alone", "gloo", "ringdist", "ringdist-shared")
INPUTS, CLASSES = 64, 10
WARM_UP = 5  # steps


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.step",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--ranks", type=int, default=2, metavar="N", help="default: 2")
    add("--parameters", type=common.parse_count, default=10_000_000, help="default: 10M")
    add("--batch", type=int, default=32, metavar="N", help="per rank (default: 32)")
    add("--seconds", type=float, default=30, help="default: 30")
    add("--json", type=Path, metavar="FILE", help="also write all figures there, in nanoseconds")
    args = parser.parse_args()
    common.require_at_least(parser, args, ranks=2, parameters=10_000, batch=1, seconds=0.1)
    return args


def network(parameters: int) -> torch.nn.Module:
    """Returns a network with two hidden layers of one width and about `parameters` parameters."""
    width = round(math.sqrt(parameters))
    return torch.nn.Sequential(
        torch.nn.Linear(INPUTS, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, CLASSES),
    )


def contender(name: str, parameters: int, batch: int) -> Callable[[], None]:
    """Returns a function that runs one step of a contender."""
    import torch_ringdist

    torch.manual_seed(0)
    model = network(parameters)
    shared = name == "ringdist-shared"
    # DDP creates its buckets now and again in the first steps. After that they stay.
    buckets = torch_ringdist.shared_memory() if shared else contextlib.nullcontext()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(batch, INPUTS)
    labels = torch.randint(CLASSES, (batch,))

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()

    with buckets:
        if name != "alone":
            group = dist.new_group(backend=name.removesuffix("-shared"))
            model = DistributedDataParallel(model, process_group=group)
        for _ in range(WARM_UP):
            step()
    return step


def run_rank(
    rank: int, world: int, port: int, barrier_path: Path, args: argparse.Namespace, result: str
) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
    )
    steps = {name: contender(name, args.parameters, args.batch) for name in CONTENDERS}
    barrier = SpinBarrier(barrier_path, rank, world)
    samples: dict[str, list[int]] = {name: [] for name in CONTENDERS}
    start = time.perf_counter()
    bar = tqdm(total=round(args.seconds), unit="s", disable=rank > 0 or None, leave=False)
    going = torch.ones(1)
    while going.item():
        for name, step in steps.items():
            barrier.wait()
            before = time.perf_counter_ns()
            step()
            took = torch.tensor(time.perf_counter_ns() - before)
            dist.all_reduce(took, dist.ReduceOp.MAX)
            samples[name].append(int(took))
        bar.update(int(time.perf_counter() - start) - bar.n)
        going.fill_(time.perf_counter() - start < args.seconds)
        dist.broadcast(going, 0)
    bar.close()
    if rank == 0:
        Path(result).write_text(json.dumps(samples))
    dist.destroy_process_group()


def main() -> int:
    args = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "samples.json")
        launch(args.ranks, run_rank, args, str(result))
        samples = json.loads(result.read_text())
    machine = common.machine()
    print(", ".join(f"{name}: {value}" for name, value in machine.items()))
    print(f"{args.ranks} ranks, {args.parameters:,} parameters, batch {args.batch} per rank\n")
    print("| | steps | minimum | median | minimum by gloo's | median by gloo's |")
    print("|---|---|---|---|---|---|")
    gloo = samples["gloo"]
    for name, of in samples.items():
        least, middle = min(of), statistics.median(of)
        print(
            f"| {name} | {len(of)} | {common.duration(least)} | {common.duration(middle)}"
            f" | {least / min(gloo):.2f} | {middle / statistics.median(gloo):.2f} |"
        )
    if args.json:
        args.json.write_text(json.dumps({"machine": machine, "samples": samples}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
