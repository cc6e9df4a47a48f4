"""Train with DDP over several hosts on one machine, with and without compression, side by side.

    python -m benchmarks.ddp training                 time to accuracy, at 1 Gb/s and 100 Mb/s
    python -m benchmarks.ddp critics                  where compression helps, and where "auto"
                                                      chooses it: 4 links and shared memory x
                                                      3 batches x 2 networks
    python -m benchmarks.ddp critics --rate 1gbit --task mlp5m --batch 32
    python -m benchmarks.ddp training --quick         a smoke test, two minutes
    python -m benchmarks.ddp steps                    steps on 2 hosts of 2 ranks at 1 Gb/s, by
                                                      gloo, ringdist and ringdist:int4: a minute
    python -m benchmarks.ddp document                 write tables and pictures of all results
                                                      into benchmarks/results/compression-when.md

A candidate is a backend with a way to exchange gradients:

    gloo, ringdist                  uncompressed
    ringdist:int4                   torch_ringdist.ddp.compress(model, "int4"); any codec,
                                    powersgd:RANK or auto
    gloo+fp16, ringdist+fp16        PyTorch's own hooks: a cast,
    gloo+powersgd:RANK@START        PowerSGD from that step on ("gloo+powersgd" alone: both tuned),
    gloo+local:PERIOD@START         post-local SGD

All candidates live in the same processes, one rank per host (two for steps), and take turns. They
have equal initial parameters and equal batches. Results with the same settings at this commit are
reused, so a later start continues a stopped run.

It needs root, and iproute2 (ip and tc). Without them it prints the reason and ends with status 0.
The hosts share this machine's cores, so computation is slower than on real hosts. On real hosts,
compression has a larger advantage.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.ddp import document, plans
from benchmarks.ddp.candidates import Candidate
from benchmarks.ddp.cells import Cells, RunError, commit
from benchmarks.ddp.links import ONE_HOST, is_link
from benchmarks.ddp.study import CRITICS, Study
from benchmarks.ddp.tasks import TASKS
from benchmarks.net import hosts as net

OUT = Path("build/bench-ddp")
EPILOG = "`python -m benchmarks.ddp --help` explains rates and candidates."


def candidate(text: str) -> str:
    if text != plans.TUNED:
        try:
            Candidate.parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    return text


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number from 1 on")
    return int(text)


def share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a share, as 0.96")
    return value


def rate(text: str) -> str:
    if not is_link(text):
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected a rate as 100mbit or 1gbit, none, or {ONE_HOST}"
        )
    return text


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ddp",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    common = argparse.ArgumentParser(add_help=False)
    add = common.add_argument
    add("--out", type=Path, default=OUT, metavar="FOLDER", help=f"of the results (default: {OUT})")
    add(
        "--study",
        type=Path,
        default=CRITICS,
        metavar="FILE",
        help=f"steps to target, by `benchmarks.compression_study --critics` (default: {CRITICS})",
    )
    measuring = argparse.ArgumentParser(add_help=False)
    add = measuring.add_argument
    add("--candidates", type=candidate, nargs="+", metavar="C", help="default: all of the table")
    add(
        "--rate",
        type=rate,
        nargs="+",
        metavar="RATE",
        help=f"of the links: 100mbit, 1gbit, ..., none (unshaped); or {ONE_HOST}: all ranks on one",
    )
    few = range(2, net.MAX_HOSTS + 1)
    add("--hosts", type=int, choices=few, metavar="N", help="default: 4, of steps: 2")
    add("--fresh", action="store_true", help="measure again what is there")
    add("--quick", action="store_true", help="a smoke test: few steps, one seed or cell")

    kinds = parser.add_subparsers(
        dest="kind", required=True, metavar="training|critics|steps|document"
    )
    training = kinds.add_parser(
        "training", parents=[common, measuring], help="time to accuracy", epilog=EPILOG
    )
    add = training.add_argument
    add("--seeds", type=int, nargs="+", default=[1, 2, 3], metavar="N", help="default: 1 2 3")
    add("--steps", type=positive, default=220, help="at most (default: 220, 20 epochs)")
    add("--target", type=share, default=0.96, help="held-out accuracy (default: 0.96)")
    add(
        "--to-target",
        type=rate,
        nargs="*",
        default=["100mbit"],
        metavar="RATE",
        help="rates at which a candidate that has reached the target is done (default: 100mbit)",
    )
    critics = kinds.add_parser(
        "critics", parents=[common, measuring], help="the critics' table", epilog=EPILOG
    )
    add = critics.add_argument
    add("--task", nargs="+", choices=TASKS, default=list(TASKS), help="default: both")
    add(
        "--batch",
        type=positive,
        nargs="+",
        default=[8, 32, 128],
        help="per rank; default: 8 32 128",
    )
    several = kinds.add_parser(
        "steps", parents=[common, measuring], help="steps on hosts of several ranks", epilog=EPILOG
    )
    add = several.add_argument
    add("--per-host", type=positive, default=2, metavar="N", help="ranks of a host (default: 2)")
    add("--batch", type=positive, default=32, help="per rank (default: 32)")
    add("--rounds", type=positive, default=20, help="steps of each that are timed (default: 20)")
    kinds.add_parser("document", parents=[common], help="write benchmarks/results/")
    args = parser.parse_args()
    if args.kind == "steps" and args.rounds < 2:
        parser.error("--rounds: expected 2 or more: ratios have an interval")
    if args.kind == "steps" and args.rate and ONE_HOST in args.rate:
        parser.error(f"--rate: {ONE_HOST}: steps are of several hosts")
    if args.kind != "document" and args.hosts is None:
        args.hosts = 2 if args.kind == "steps" else 4
    return args


def main() -> int:
    args = parse_arguments()
    if args.kind == "document":
        return document.write(args.out, Study.load(args.study))
    if reason := net.why_not():
        print(f"skipped: {reason}")
        return 0
    # Figures of a smoke test are kept apart from the others.
    folder = args.out / "quick" if args.quick else args.out
    cells = Cells(folder, commit(), args.fresh)
    net.unwind_on_signals()
    try:
        if args.kind == "training":
            plans.training(cells, args)
        elif args.kind == "steps":
            plans.steps(cells, args)
        else:
            plans.critics(cells, args, Study.load(args.study))
    except KeyboardInterrupt:
        print("interrupted; what was finished is kept", file=sys.stderr)
        return 130
    except (RunError, net.CommandError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
