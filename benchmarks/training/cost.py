"""Measure the cost of a State without failures: instructions of a step, and time of a commit.

    python -m benchmarks.training.cost                     a network of 1 M parameters; minutes
    python -m benchmarks.training.cost --parameters 30k --steps 30

A step is forward, backward with DDP over ringdist, and SGD with momentum. It runs on one rank
alone, so that other ranks do not count. Instructions are those of all its threads, counted by
callgrind in separate processes (apt-get install valgrind). The time of a commit is compared with
that of a copy. The copy has the bytes that a State keeps with copy=True: parameters and the
optimizer's state.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from benchmarks import report as common
from benchmarks.step import CLASSES, INPUTS, network
from torch_ringdist import _units, elastic

PLAIN, NO_COPY, COPY = "plain DDP", "copy=False", "copy=True"
_COUNTED = re.compile(r"Collected : (\d+)")
WARM = 5  # steps


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training.cost",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--parameters", type=common.parse_count, default=1_000_000, help="default: 1M")
    add("--batch", type=int, default=32, metavar="N", help="default: 32")
    add("--steps", type=int, default=5, metavar="N", help="that are counted (default: 5)")
    add("--count", choices=(PLAIN, NO_COPY, COPY), help=argparse.SUPPRESS)
    args = parser.parse_args()
    common.require_at_least(parser, args, parameters=10_000, batch=1, steps=1)
    if args.count is None and shutil.which("valgrind") is None:
        parser.error("there is no valgrind here: apt-get install valgrind")
    return args


def train(how: str, args: argparse.Namespace, counts: Callable[[bool], None]) -> list[float]:
    """Returns seconds of each commit. `counts` is called with True when the counted steps begin,
    and with False when they end."""
    torch.manual_seed(0)
    net = network(args.parameters)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    x, y = torch.randn(args.batch, INPUTS), torch.randint(CLASSES, (args.batch,))
    times: list[float] = []

    def go(commit: Callable[[], None]) -> None:
        model = DistributedDataParallel(net)
        for step in range(WARM + args.steps):
            if step == WARM:
                counts(True)
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            before = time.perf_counter()
            commit()
            times.append(time.perf_counter() - before)
        counts(False)

    if how == PLAIN:
        dist.init_process_group("ringdist", store=dist.HashStore(), rank=0, world_size=1)
        go(optimizer.zero_grad)
    else:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        os.environ["RINGDIST_RDZV"] = f"127.0.0.1:{store.port}"
        elastic.init()
        state = elastic.State(copy=how == COPY, net=net, optimizer=optimizer)
        elastic.run(lambda state: go(state.commit))(state)
    return times[WARM:]


def count(args: argparse.Namespace) -> None:
    """Counts instructions, in a process under callgrind."""

    def instrument(on: bool) -> None:
        command = ["callgrind_control", "-i", "on" if on else "off", str(os.getpid())]
        subprocess.run(command, capture_output=True)

    train(args.count, args, instrument)
    dist.destroy_process_group()


def instructions(how: str, args: argparse.Namespace, folder: Path) -> float:
    """Returns the instructions of a step."""
    command = ["valgrind", "--tool=callgrind", "--instr-atstart=no"]
    command += [f"--callgrind-out-file={folder / 'callgrind.out'}"]
    command += [sys.executable, "-m", "benchmarks.training.cost", f"--count={how}"]
    command += [f"--{name}={getattr(args, name)}" for name in ("parameters", "batch", "steps")]
    fixed = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        command, env={**os.environ, **fixed}, capture_output=True, text=True, check=False
    )
    found = _COUNTED.search(done.stderr)
    if done.returncode != 0 or found is None:
        raise SystemExit(f"{how}: {done.stderr[-2000:]}")
    return int(found[1]) / args.steps


def copy_time(count: int, repeats: int) -> float:
    """Returns the time to copy parameters and momentum, the least of several."""
    source, target = torch.ones(2 * count), torch.zeros(2 * count)
    times = []
    for _ in range(repeats):
        before = time.perf_counter()
        target.copy_(source)
        times.append(time.perf_counter() - before)
    return min(times)


def main() -> int:
    args = parse_arguments()
    torch.set_num_threads(1)
    if args.count:
        count(args)
        return 0
    print(", ".join(f"{name}: {value}" for name, value in common.machine().items()), flush=True)
    counted: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="ringdist_bench_") as folder:
        for how in tqdm((PLAIN, NO_COPY, COPY), disable=not sys.stderr.isatty()):
            counted[how] = instructions(how, args, Path(folder))
    times = {}
    for how in (PLAIN, NO_COPY, COPY):
        times[how] = min(train(how, args, lambda _: None))
        dist.destroy_process_group()
    copied = copy_time(sum(one.numel() for one in network(args.parameters).parameters()), 20)
    rows = [("", "instructions of a step", "of plain DDP", "commit", "of a copy")]
    for how, number in counted.items():
        share = f"{times[how] / copied:.3f}"
        cells = (f"{number:,.0f}", f"{number / counted[PLAIN]:.4f}")
        rows.append((how, *cells, common.duration(times[how] * 1e9), share))
    print("\n".join(_units.table(rows)))
    print(f"plain DDP's commit is zero_grad(); a copy takes {common.duration(copied * 1e9)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
