"""Kill one of four training ranks, and time the others until they have committed the next step.

    python -m benchmarks.training                 20 kills of each contender, in turn
    python -m benchmarks.training --kills 3 --contenders ringdist --json out.jsonl

The clock runs from the kill -9 until all continuing ranks have committed a step without the victim.
The time of a step is subtracted. If another rank joins in its place, the others pause again. This
pause is the time from their last step without it to the first one with it, less a step.

ringdist: examples/elastic_digits.py under `python -m torch_ringdist run`, which starts another
process.

torchrun: the same network and steps with plain DDP over ringdist. It writes a checkpoint after each
step, and `torchrun --max-restarts` starts all ranks again. So the clock runs until all four have
committed a step.

torchft (0.2, over gloo, if it is installed): the same network and steps in four
replica groups of one rank. The benchmark starts another one at once, which joins while the others
recover. The lighthouse, Managers and gloo have the settings of torchft's README and of its
train_ddp.py.

Each kill is in a job of its own. The rank and the time are random, and the contenders take turns.
Processes start slowly with few cores, which is most of torchrun's time.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import statistics
import sys
import tempfile
from pathlib import Path

from tqdm import tqdm

from benchmarks import report as common
from benchmarks.training.kill import Kill
from torch_ringdist import _units

# Each has a module that kills one of its ranks.
CONTENDERS = ("ringdist", "torchrun", "torchft")


def contenders(wanted: list[str]) -> list[str]:
    """Returns the contenders that can be measured here."""
    os.environ.setdefault("RUST_LOG", "warn")  # otherwise torchft prints a page per step
    try:
        importlib.import_module("torchft")
    except ImportError as error:
        if "torchft" in wanted:
            print(f"left out: torchft ({error}); python tools/check_torchft.py --help says how")
        return [name for name in wanted if name != "torchft"]
    return wanted


def table(results: dict[str, list[Kill]]) -> list[str]:
    rows: list[tuple[str, ...]] = [("", "kills", "minimum", "median", "worst")]
    for name, kills in results.items():
        times = {
            f"{name}: to the next step": [kill.recovery for kill in kills],
            f"{name}: another one joins": [k.join for k in kills if k.join is not None],
        }
        for what, seconds in times.items():
            if seconds:
                figures = (min(seconds), statistics.median(seconds), max(seconds))
                cells = [common.duration(one * 1e9) for one in figures]
                rows.append((what, str(len(seconds)), *cells))
    return _units.table(rows)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--kills", type=int, default=20, metavar="N", help="of each contender (default: 20)")
    add("--seed", type=int, default=1, help="of whom is killed, and when (default: 1)")
    add("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS), metavar="NAME")
    add("--json", type=Path, metavar="FILE", help="also write each kill there, as a line of JSON")
    args = parser.parse_args()
    common.require_at_least(parser, args, kills=1)
    return args


def main() -> int:
    args = parse_arguments()
    print(", ".join(f"{name}: {value}" for name, value in common.machine().items()), flush=True)
    results: dict[str, list[Kill]] = {name: [] for name in contenders(args.contenders)}
    with tqdm(total=args.kills * len(results), unit="kill", disable=not sys.stderr.isatty()) as bar:
        for number in range(args.kills):
            for name, kills in results.items():
                drawn = random.Random(f"{args.seed}, {name}, {number}")
                job = importlib.import_module(f"benchmarks.training.{name}_job")
                with tempfile.TemporaryDirectory(prefix="ringdist_bench_") as folder:
                    kills.append(job.kill(Path(folder), drawn))
                if args.json:
                    line = {"contender": name, "number": number, **vars(kills[-1])}
                    with args.json.open("a") as file:
                        print(json.dumps(line), file=file)
                bar.update()
    print("\n".join(table(results)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
