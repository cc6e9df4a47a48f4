"""Time operations by name, compared with operations by the order of calls and with gloo.

    make bench-horovod
    python -m benchmarks.horovod --parts single many --repetitions 50

There are two ranks, or --world-size. In each repetition every contender does the same work once, in
turns. A sample is the time of the slowest rank. The report has minimum and median of each, and both
relative to its reference.

    single     a blocking sum
    many       300 small sums at once
    training   steps of DistributedOptimizer and of DistributedDataParallel, also with int4
    timeline   steps, recorded and not
    alone      steps of a process alone, after init() and without: of at most three pairs of
               processes, as many of each as there are repetitions
    messages   of many ranks that agree on many calls, counted by a test of C++, if it is built
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import report as common
from benchmarks.horovod.alone import AFTER, WITHOUT, alone
from benchmarks.horovod.messages import messages
from benchmarks.horovod.rank import PARTS
from torch_ringdist import _units

CHOICES = (*PARTS, "alone", "messages")
# Maps each contender to its reference.
AGAINST = {
    "by name": "dist.all_reduce",
    "gloo": "by name",
    "grouped, by name": "coalesced",
    "each, by name": "each, gloo",
    "DistributedOptimizer": "DDP",
    "DistributedOptimizer, int4": "DDP, int4",
    "timeline on": "timeline off",
    AFTER: WITHOUT,
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.horovod",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--parts", nargs="+", choices=CHOICES, default=CHOICES, metavar="PART", help="default: all")
    add("--repetitions", type=int, default=30, metavar="N", help="default: 30")
    add("--world-size", type=int, default=2, metavar="N", help="ranks; default: 2")
    args = parser.parse_args()
    common.require_at_least(parser, args, repetitions=1, world_size=2)
    return args


def measure(args: argparse.Namespace, parts: Sequence[str]) -> dict[str, Any]:
    """Returns samples of each part, and the share of a core that an idle rank uses."""
    with tempfile.TemporaryDirectory(prefix="ringdist_bench_") as folder:
        out = Path(folder, "figures.json")
        command = [sys.executable, "-m", "torch_ringdist._launch.ringdistrun"]
        command += ["-np", str(args.world_size), sys.executable, "-m", "benchmarks.horovod.rank"]
        command += [f"--repetitions={args.repetitions}", f"--out={out}"]
        command += ["--parts", *parts]
        if subprocess.run(command, check=False).returncode != 0:
            raise SystemExit("a rank has failed")
        return json.loads(out.read_text())


def rows_of(samples: list[dict[str, float]]) -> list[tuple[str, ...]]:
    times = {name: [one[name] for one in samples] for name in samples[0]}
    out = []
    for name, all_times in times.items():
        least, middle = min(all_times), statistics.median(all_times)
        cells = [common.duration(least * 1e9), common.duration(middle * 1e9)]
        other = AGAINST.get(name)
        if other in times:
            share = least / min(times[other]), middle / statistics.median(times[other])
            cells += [f"{share[0]:.2f} / {share[1]:.2f}", f"of {other}"]
        else:
            cells += ["", ""]
        out.append((name, *cells))
    return out


def show(work: Callable[..., object], samples: list[dict[str, float]]) -> None:
    table = [("", "minimum", "median", "min / med", ""), *rows_of(samples)]
    print(f"\n{(work.__doc__ or '').splitlines()[0]}")
    print("\n".join(_units.table(table)), flush=True)


def main() -> int:
    args = parse_arguments()
    print(", ".join(f"{name}: {value}" for name, value in common.machine().items()), flush=True)
    of_ranks = [part for part in PARTS if part in args.parts]
    if of_ranks:
        figures = measure(args, of_ranks)
        for part in of_ranks:
            show(PARTS[part][0], figures[part])
        print(f"\nidle: {100 * figures['idle']:.2f} % of a core")
    if "alone" in args.parts:
        show(alone, alone(args.repetitions))
    if "messages" in args.parts:
        print(f"\n{messages.__doc__}: {messages()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
