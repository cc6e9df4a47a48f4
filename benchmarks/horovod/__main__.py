"""Operations by name, beside those by the order of calls, and beside gloo.

    make bench-horovod
    python -m benchmarks.horovod --parts single many --repetitions 50

Two ranks, or --world-size. In each repetition every contender does the same work once, in turns; a
sample is the slowest rank's. Of each the minimum and the median, and both as shares of the one that
it is held against.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import report as common
from benchmarks.horovod.rank import PARTS
from torch_ringdist import _show

# What is held against what.
AGAINST = {
    "by name": "dist.all_reduce",
    "gloo": "by name",
    "grouped, by name": "coalesced",
    "each, by name": "each, gloo",
    "DistributedOptimizer": "DDP",
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.horovod",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--parts", nargs="+", choices=PARTS, metavar="PART", help=f"default: {' '.join(PARTS)}")
    add("--repetitions", type=int, default=20, metavar="N", help="default: 20")
    add("--world-size", type=int, default=2, metavar="N", help="ranks; default: 2")
    args = parser.parse_args()
    common.require_at_least(parser, args, repetitions=1, world_size=2)
    return args


def measure(args: argparse.Namespace) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="ringdist_bench_") as folder:
        out = Path(folder, "figures.json")
        command = [sys.executable, "-m", "torch_ringdist._launch.ringdistrun"]
        command += ["-np", str(args.world_size), sys.executable, "-m", "benchmarks.horovod.rank"]
        command += [f"--repetitions={args.repetitions}", f"--out={out}"]
        command += ["--parts", *(args.parts or PARTS)]
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


def main() -> int:
    args = parse_arguments()
    print(", ".join(f"{name}: {value}" for name, value in common.machine().items()), flush=True)
    figures = measure(args)
    idle = figures.pop("idle")
    for part, samples in figures.items():
        description = (PARTS[part][0].__doc__ or "").splitlines()[0]
        print(f"\n{description}")
        table = [("", "minimum", "median", "min / med", ""), *rows_of(samples)]
        print("\n".join(_show.table(table)))
    print(f"\nidle: {100 * idle:.2f} % of a core")
    return 0


if __name__ == "__main__":
    sys.exit(main())
