"""Kill ranks in a loop of all_reduces, time the recovery of the others, and check their results.

    python -m benchmarks.recovery                          200 runs, another seed each time
    python -m benchmarks.recovery --runs 20 --seed 7 --json out.jsonl
    python -m benchmarks.recovery --seed 7 --first 41 --runs 1     run 41 of seed 7 again
    python -m benchmarks.recovery --peer torchft --runs 20

In each run 4 ranks of this host sum tensors of 8 bytes to 4 MiB, one after the other. One of them
is killed (SIGKILL) at a random moment. In every second run another one is killed 0 to 200 ms later.
Rank 0 hosts the TCPStore. In one run of ten, rank 0 is killed, alone or as one of two. Each rank
has forked a child, like a DataLoader with workers. The child holds all inherited descriptors until
the run is over. The survivors call torch_ringdist.shrink() when they get an error.

The clock runs from the last kill until all survivors have finished the first all_reduce of the last
group. These conditions are checked:

    - all survivors name the same dead processes, by process id, and the same members
    - this sum is exact, and another sum, which rounds, has the same bits on all
    - all report the same first all_reduce that some rank had not finished
    - a new group can be created over the store
    - all survivors leave in good order

The seed and the number of a run determine the victims and the times of kills, but not the work of
the ranks at those times. A run that fails is printed with the seed and the logs of all ranks, and
then the status is 1.

The peer torchft (0.2, with gloo) makes the same sums. Each rank is a replica group with its own
store and Manager. A step is start_quorum, an allreduce and should_commit. The lighthouse, which is
not killed, has the settings of torchft's README. The Manager and gloo have those of its
train_ddp.py. The clock stops at the first step that all survivors commit.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from benchmarks import report as common
from benchmarks.recovery import peers
from benchmarks.recovery.plan import KINDS, Plan
from benchmarks.recovery.processes import adopt_orphans
from benchmarks.recovery.run import Outcome, run
from torch_ringdist import _info_text

LIMIT = 90.0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.recovery",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--runs", type=int, default=200, metavar="N", help="default: 200")
    add("--seed", type=int, help="of what is drawn (default: a new one, which is printed)")
    add("--first", type=int, default=0, metavar="N", help="number of the first run (default: 0)")
    add("--peer", choices=peers.NAMES, default=peers.NAMES[0], help="default: %(default)s")
    add("--children", type=int, default=1, metavar="N", help="that each rank forks (default: 1)")
    add("--limit", type=float, default=LIMIT, metavar="S", help="seconds of a run (default: 90)")
    add("--json", type=Path, metavar="FILE", help="also write each run there, as a line of JSON")
    args = parser.parse_args()
    common.require_at_least(parser, args, runs=1, first=0, children=0, limit=0.001)
    if args.seed is None:
        args.seed = random.randrange(1 << 30)
    return args


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """Returns lines on the runs that recovered, with right or wrong results."""
    rows: list[tuple[str, ...]] = [("killed", "runs", "failed", "minimum", "median", "worst")]
    for kind in ("all", *KINDS):
        some = [one for one in outcomes if kind in ("all", one.plan.kind)]
        if not some:
            continue
        times = [one.seconds * 1e9 for one in some if one.answers]
        figures = (min(times), statistics.median(times), max(times)) if times else ()
        cells = [common.duration(figure) for figure in figures] or ["-"] * 3
        failed = sum(bool(one.problems) for one in some)
        rows.append((kind, str(len(some)), str(failed), *cells))
    return _info_text.table(rows)


def describe(outcome: Outcome, args: argparse.Namespace) -> str:
    again = f"python -m benchmarks.recovery --peer {args.peer} --children {args.children}"
    return "\n".join(
        [
            f"FAILED: {outcome.plan} ({outcome.plan.kind})",
            *(f"  {problem}" for problem in outcome.problems),
            outcome.logs,
            f"---- again: {again} --seed {args.seed} --first {outcome.plan.number} --runs 1",
        ]
    )


def main() -> int:
    args = parse_arguments()
    peer = peers.find(args.peer)
    tqdm.monitor_interval = 0  # a process that forks must not have its thread
    adopt_orphans()
    print(", ".join(f"{name}: {value}" for name, value in common.machine().items()))
    print(f"{args.peer}, seed {args.seed}, {args.runs} runs from {args.first}", flush=True)
    outcomes: list[Outcome] = []
    out = args.json.open("w", buffering=1) if args.json else open(os.devnull, "w")  # noqa: SIM115
    numbers = range(args.first, args.first + args.runs)
    with out, tqdm(numbers, unit="run", disable=not sys.stderr.isatty()) as bar:
        for number in bar:
            outcome = run(Plan.draw(number, args.seed), peer, args.children, args.limit)
            outcomes.append(outcome)
            print(outcome.as_json(), file=out)
            if outcome.problems:
                bar.write(describe(outcome, args), file=sys.stdout)
                sys.stdout.flush()
    print("\n".join(table(outcomes)))
    failed = [str(one.plan.number) for one in outcomes if one.problems]
    if failed:
        print(
            f"seed {args.seed}: {len(failed)} of {len(outcomes)} runs failed: {', '.join(failed)}"
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
