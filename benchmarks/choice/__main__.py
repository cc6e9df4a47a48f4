"""Compares the planner's choice with every algorithm that could be forced.

    python -m benchmarks.choice                            every operation, 8 B to 64 MiB, 2 and 4
                                                           ranks on one host and on two at 10 Gb/s;
                                                           15 minutes; continues a stopped run
    python -m benchmarks.choice --layouts 1x4 --operations all_reduce --sizes 16K 64K 1M

The table has, for each operation and size, the least time of a group with the planner's choice. The
least times of groups with each suitable algorithm forced follow, in increasing order. A choice is
near if it takes at most 10 % or 2 us longer than the best. Other rows are marked with "!". The mark
is "=" if the best is the chosen algorithm, or equivalent to it, so that the times differ by chance.
The column "foreseen" is the predicted duration of `plan` on its simulated network, divided by the
measured time.

A layout is hosts x ranks per host, as 1x4, or the ranks of every host, as 1+2. Choices use the
built-in constants for links of --rate, or RINGDIST_COSTS. RINGDIST_ALGORITHM must not be set. Hosts
are network namespaces on this machine, which need root and iproute2. Without them it prints the
reason and ends with status 0.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from benchmarks import kept
from benchmarks.choice import report
from benchmarks.choice.cells import cells_of
from benchmarks.choice.job import Job
from benchmarks.host.operations import OPERATIONS
from benchmarks.kept import to_text
from benchmarks.net import hosts as net
from benchmarks.net.layout import Layout
from benchmarks.net.sweep import CONGESTION, MEASURED, RunError, on_hosts, parse_rate
from benchmarks.report import parse_size, require_at_least
from torch_ringdist import _units
from torch_ringdist._costs import Costs

LAYOUTS = ("1x2", "1x4", "2x1", "2x2")
SIZES = ("8", "1K", "4K", "16K", "64K", "256K", "1M", "4M", "16M", "64M")


def parse_layout(text: str) -> Layout:
    try:
        layout = Layout.parse(text, least_hosts=1)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if layout.world < 2:
        raise argparse.ArgumentTypeError(f"{text!r}: one rank has nothing to choose")
    return layout


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.choice",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    default = f"default: {' '.join(LAYOUTS)}"
    add("--layouts", type=parse_layout, nargs="+", metavar="HxR|R+R", help=default)
    add("--rate", type=parse_rate, default="10gbit", help="between hosts; default: 10gbit")
    add("--operations", nargs="+", choices=OPERATIONS, metavar="NAME", help="default: all")
    sizes = f"of the longest tensor; default: {' '.join(SIZES)}"
    add("--sizes", type=parse_size, nargs="+", metavar="BYTES", help=sizes)
    add("--rounds", type=int, default=20, help="default: 20")
    add("--out", type=Path, default=Path("build/bench-choice"), metavar="FOLDER")
    add("--fresh", action="store_true", help="measure again what is there")
    args = parser.parse_args()
    require_at_least(parser, args, rounds=1)
    if forced := os.environ.get("RINGDIST_ALGORITHM"):
        parser.error(f"RINGDIST_ALGORITHM={forced}: unset it, or nothing is chosen")
    return args


def measure(job: Job, logs: Path) -> dict:
    """Returns the results of the ranks. Raises RunError."""
    hosts = net.Hosts(job.ranks.hosts, job.rate, CONGESTION)
    words = ["-m", "benchmarks.choice.rank", "--job", to_text(job)]
    return on_hosts(hosts, job.ranks, words, logs, job.layout, with_mpi=False)


def costs_for(args: argparse.Namespace) -> Costs:
    """Returns the costs that ranks use, and sets RINGDIST_COSTS, which they inherit."""
    if given := os.environ.get("RINGDIST_COSTS"):
        return Costs.in_force(given)[0]
    rate = None if args.rate == "none" else _units.parse_rate("--rate", args.rate)
    costs = Costs.built_in(rate)
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out.resolve() / f"costs-{args.rate}.json"
    costs.to_file(path)
    os.environ["RINGDIST_COSTS"] = str(path)
    return costs


def run(args: argparse.Namespace) -> None:
    store = kept.Kept(args.out / "cells", kept.commit((*MEASURED, "benchmarks/choice")), args.fresh)
    costs = costs_for(args)
    sizes = args.sizes or [parse_size(size) for size in SIZES]
    rows, machine = [], {}
    for layout in args.layouts or [parse_layout(text) for text in LAYOUTS]:
        cells = cells_of(layout, args.operations or OPERATIONS, sizes, costs)
        if not cells:
            raise RunError(f"{layout.text}: these operations have no tensors: {args.operations}")
        job = Job(layout.text, args.rate, args.rounds, tuple(cells))
        found = store.find(job) or store.keep(job, measure(job, args.out / "logs" / job.name))
        machine = found["machine"]
        of_layout = report.rows_of(found)
        rows += of_layout
        print(report.table(of_layout), flush=True)
    if len({row.layout for row in rows}) > 1:
        print(f"\nall layouts: {report.summary(rows)}")
    path = args.out / "choice.json"
    path.write_text(
        json.dumps({"machine": machine, "rows": [row.as_dict() for row in rows]}, indent=1) + "\n"
    )
    print(f"\nwritten: {path}")


def main() -> int:
    args = parse_arguments()
    if reason := net.why_not():
        print(f"skipped: {reason}")
        return 0
    net.unwind_on_signals()
    try:
        run(args)
    except KeyboardInterrupt:
        print("interrupted; the hosts are removed, what was finished is kept", file=sys.stderr)
        return 130
    except (net.CommandError, RunError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
