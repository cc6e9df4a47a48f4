"""Train with and without compression, and compare the results.

    python -m benchmarks.compression_study                      all of it; see docs for how long
    python -m benchmarks.compression_study --quick              a short test that everything works
    python -m benchmarks.compression_study --tasks digits --optimisers sgd --codecs int4 int4/no-ef
    python -m benchmarks.compression_study --critics            a 5 M network too, batches 8 to 128
    python -m benchmarks.compression_study --ddp-check          the simulation against real DDP

Every finished run is one line of OUT/runs.jsonl, and a later start continues from there. A change
of the code (by its commit) discards these runs. Other settings add to them. OUT gets the figures
(study.json or critics.json), tables (compression-study.md) and pictures; --docs copies the last two
to docs/.

A codec is written codec[/no-ef][/warmup=STEPS]: without error feedback, uncompressed at first. The
uncompressed run is always included.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.compression_study import plan, report
from benchmarks.compression_study.analysis import rows
from benchmarks.compression_study.ddp_check import check
from benchmarks.compression_study.records import ROOT, Records
from benchmarks.compression_study.tasks import TASKS
from benchmarks.compression_study.training import Settings
from benchmarks.compression_study.variants import Variant

OPTIMISERS = ("sgd", "adamw")
RESULTS = ROOT / "benchmarks" / "results"
# The codecs of benchmarks.ddp critics.
CRITICS_VARIANTS = ("none", "fp16", "int8", "int4", "onebit", "powersgd:4")
CRITICS_CELLS = (("mlp5m", "sgd"), ("text", "adamw"))
# More seeds for accuracy on 450 images, which is noisy and has short runs. The loss of other tasks
# is smooth.
SEEDS = {"digits": 20}
CRITICS_SEEDS = {"mlp5m": 3, "text": 1}
CRITICS_BATCHES = (8, 32, 128)


def variant(text: str) -> str:
    from torch_ringdist import _native

    try:
        _native.load().codec_traits(Variant.parse(text).codec, 4)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number from 1 on")
    return int(text)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compression_study",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--tasks", nargs="+", choices=list(TASKS), help="default: digits text")
    add("--optimisers", nargs="+", choices=OPTIMISERS, help="default: both")
    add(
        "--codecs", nargs="+", type=variant, metavar="C", help=f"default: {' '.join(plan.VARIANTS)}"
    )
    add(
        "--batches",
        nargs="+",
        type=positive,
        metavar="N",
        help="per rank; default: each task's own",
    )
    add(
        "--seeds",
        type=positive,
        metavar="N",
        help="pairs per codec (default: digits 20, others 10; critics: 3, text 1)",
    )
    add("--steps", type=positive, metavar="N", help="default: each task's own")
    add("--jobs", type=int, choices=(1, 2), default=2, help="processes at once (default: 2)")
    add("--out", type=Path, default=ROOT / "build" / "compression-study", metavar="FOLDER")
    add("--fresh", action="store_true", help="forget the runs in OUT")
    add("--docs", action="store_true", help="also write table and pictures to benchmarks/results/")
    add("--quick", action="store_true", help="two seeds, 40 steps, one learning rate's seed")
    add("--critics", action="store_true", help="accuracy and steps by batch size")
    add("--ddp-check", action="store_true", help="only that: 50 steps of int4, bit for bit")
    args = parser.parse_args()
    if args.quick and args.docs:
        parser.error("--docs: a quick look is not for the docs")
    return args


def choose_cells(args: argparse.Namespace) -> list[plan.Cell]:
    tasks, optimisers = args.tasks or ("digits", "text"), args.optimisers or OPTIMISERS
    pairs = [(task, optimiser) for task in tasks for optimiser in optimisers]
    if args.critics and not (args.tasks or args.optimisers):
        pairs = list(CRITICS_CELLS)
    out = []
    for task, optimiser in pairs:
        steps = args.steps or (40 if args.quick else TASKS[task].steps)
        batches = args.batches or (CRITICS_BATCHES if args.critics else [TASKS[task].batch])
        seeds = args.seeds or default_seeds(args, task)
        out += [plan.Cell(task, optimiser, batch, steps, seeds) for batch in batches]
    return out


def default_seeds(args: argparse.Namespace, task: str) -> int:
    if args.quick:
        return 2
    return CRITICS_SEEDS.get(task, 3) if args.critics else SEEDS.get(task, 10)


def run_study(args: argparse.Namespace) -> None:
    scale = plan.Scale(1 if args.quick or args.critics else 2, args.jobs)
    variants = args.codecs or (CRITICS_VARIANTS if args.critics else plan.VARIANTS)
    records = Records(args.out, args.fresh)
    cells = choose_cells(args)
    rates = plan.sweep(cells, scale, records)
    results = plan.study(rates, variants, scale, records)
    table = rows(results, rates)
    facts = report.about(records.commit)
    name = "critics" if args.critics else "study"
    report.save_json(args.out / f"{name}.json", facts, table)

    from benchmarks.compression_study.plots import draw  # matplotlib takes a second to load

    for folder in [args.out, *([RESULTS] if args.docs else [])]:
        page = folder / f"compression-{name}.md"
        pictures = draw(page.with_suffix(""), results, table)
        text = report.markdown(facts, cells, table, pictures)
        page.write_text(text)
        print(f"written: {page}, {', '.join(path.name for path in pictures.values())}")
    print(f"written: {args.out / name}.json\n\n{text}")


def main() -> int:
    args = parse_arguments()
    try:
        if args.ddp_check:
            for task, optimiser, lr in (("digits", "sgd", 0.05), ("text", "adamw", 3e-3)):
                steps = args.steps or 50
                print(check(Settings(task, optimiser, lr, "int4", 0, steps, steps)))
        else:
            run_study(args)
    except KeyboardInterrupt:
        print("interrupted; finished runs are kept", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
