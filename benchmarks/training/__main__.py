"""Kill one of four ranks that train: how long until all that go on have committed the next step?

    python -m benchmarks.training                 20 kills of each contender, in turn; 15 minutes
    python -m benchmarks.training --kills 3 --json out.jsonl

ringdist: examples/elastic_digits.py under `python -m torch_ringdist run`. The clock runs from the
kill -9 until all three survivors have committed a step of the next generation, less the time of a
step. The launcher starts another process; how long the others stand still as it joins is from
their last step without it to the first one with it, less a step.

torchrun: the same network and steps, plain DDP over ringdist, which writes a checkpoint after each
step, under `torchrun --max-restarts`; from the kill until all four have committed a step again,
less a step.

Each kill is one of a job of its own, of a rank and at a moment that are drawn; the contenders take
turns. Processes start slowly where cores are few: that is most of torchrun's time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from benchmarks import report as common
from tests.chaos.launched import EXAMPLES, Launched
from tests.chaos.records import Record, read
from torch_ringdist import _show

RANKS = 4
PAUSE = 0.02  # seconds that a step takes longer, so that steps are as long as those of real models
_LIMIT = 120.0


@dataclass(frozen=True)
class Kill:
    """What came of one; seconds."""

    recovery: float  # to the next step of all who go on, less a step
    join: float | None  # how long the others stood still as another one came


def step_time(records: list[Record]) -> float:
    """Of the steps of one rank: the median from one to the next."""
    mine = [one.time for one in records if one.rank == records[0].rank]
    return statistics.median(b - a for a, b in itertools.pairwise(mine))


def committed(folder: Path) -> list[Record]:
    return [one for one in read(folder) if one.what == "committed"]


def wait_until(condition: Callable[[], bool], output: Callable[[], str]) -> None:
    deadline = time.monotonic() + _LIMIT
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"it does not go on within {_LIMIT:g} s\n{output()}")
        time.sleep(0.1)


def ringdist(folder: Path, drawn: random.Random) -> Kill:
    steps = folder / "steps"
    script = [str(EXAMPLES / "elastic_digits.py"), "--no-progress", "--no-copy"]
    script += [f"--log={steps}", f"--pause={PAUSE}", "--epochs=1000000"]
    with Launched(folder / "job", [f"--nproc-per-node={RANKS}"], script) as job:
        wait_until(lambda: len(committed(steps)) > 20 * RANKS, job.output)
        time.sleep(drawn.uniform(0, 1))
        pids = job.members()
        victim = drawn.randrange(RANKS)
        before = committed(steps)
        killed = time.time()
        os.kill(pids[victim], signal.SIGKILL)

        def of_size(size: int, later: float) -> list[Record]:
            return [r for r in committed(steps) if r.size == size and r.time > later]

        wait_until(lambda: len(of_size(RANKS, killed + 0.5)) > 10 * RANKS, job.output)
        step = step_time(before)
        survivors = of_size(RANKS - 1, killed)
        first = _first_of_all(survivors, RANKS - 1)
        again = [one for one in of_size(RANKS, killed) if one.generation > first.generation]
        join = _first_of_all(again, RANKS).time - survivors[-1].time - step
    return Kill(first.time - killed - step, join)


def _first_of_all(records: list[Record], size: int) -> Record:
    """When the last of so many ranks had committed the first step."""
    step = min(one.step for one in records)
    for number in range(step, step + 3):  # of the first, some may have got the result from others
        mine = [one for one in records if one.step == number]
        if len(mine) == size:
            return mine[-1]
    raise SystemExit(f"no step from {step} on was committed by {size} ranks")


def torchrun(folder: Path, drawn: random.Random) -> Kill:
    steps = folder / "steps"
    script = [str(Path(__file__).with_name("torchrun_rank.py"))]
    script += [str(steps), str(folder / "checkpoint.pt"), str(PAUSE)]
    launch = ["-m", "torch.distributed.run", f"--nproc-per-node={RANKS}", "--max-restarts=9"]
    launch += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    with (folder / "output").open("wb") as output:
        agent = subprocess.Popen(
            [sys.executable, *launch, *script],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    try:
        wait_until(lambda: len(committed(steps)) > 20 * RANKS, (folder / "output").read_text)
        time.sleep(drawn.uniform(0, 1))
        before = committed(steps)
        old = {one.pid for one in before}
        victim = drawn.randrange(RANKS)
        killed = time.time()
        os.kill(next(one.pid for one in before if one.rank == victim), signal.SIGKILL)

        def again() -> dict[int, float]:
            first: dict[int, float] = {}
            for one in committed(steps):
                if one.pid not in old:
                    first.setdefault(one.rank, one.time)
            return first

        wait_until(lambda: len(again()) == RANKS, (folder / "output").read_text)
        return Kill(max(again().values()) - killed - step_time(before), None)
    finally:
        agent.send_signal(signal.SIGTERM)
        agent.wait()


CONTENDERS = {"ringdist": ringdist, "torchrun": torchrun}


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
    return _show.table(rows)


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
    results: dict[str, list[Kill]] = {name: [] for name in args.contenders}
    with tqdm(total=args.kills * len(results), unit="kill", disable=not sys.stderr.isatty()) as bar:
        for number in range(args.kills):
            for name, kills in results.items():
                drawn = random.Random(f"{args.seed}, {name}, {number}")
                with tempfile.TemporaryDirectory(prefix="ringdist_bench_") as folder:
                    kills.append(CONTENDERS[name](Path(folder), drawn))
                if args.json:
                    line = {"contender": name, "number": number, **vars(kills[-1])}
                    with args.json.open("a") as file:
                        print(json.dumps(line), file=file)
                bar.update()
    print("\n".join(table(results)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
