"""Kill a rank and let another one join, a hundred times, and check that the oldest does not wear
out.

    python -m tests.chaos.wear --kills 100

Four ranks train examples/elastic_digits.py under `python -m torch_ringdist run`. Each time one of
the three other ranks is killed, and its successor joins before the next kill. Afterwards the oldest
rank must have its original numbers of descriptors and threads and at most 10 MiB more memory. No
process may be left, and nothing in shared memory. Otherwise the status is 1. 100 kills take about
ten minutes.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from tests.chaos.digits import SCRIPT
from tests.chaos.launched import Launched

RANKS = 4
GROWTH = 10.0  # MiB
# After this many kills, every code path has run once.
WARM = 3
_POOL = "ringdist-task"
_SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Use:
    """Resources of a process."""

    descriptors: int
    threads: int  # without threads of the pool, which come and go with tasks
    memory: float  # MiB


def use_of(pid: int) -> Use:
    process = Path(f"/proc/{pid}")
    lines = (process / "status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    threads = [one.read_text().strip() for one in process.glob("task/*/comm")]
    return Use(
        len(list((process / "fd").iterdir())),
        sum(name != _POOL for name in threads),
        int(status["VmRSS"].split()[0]) / 1024,
    )


def shared_memory() -> set[str]:
    """Returns the files in shared memory. Semaphores are excluded, because they are not the
    project's: a process killed in sem_open() leaves a temporary file."""
    return {one.name for one in _SHARED_MEMORY.iterdir() if not one.name.startswith("sem.")}


def kill_and_wait(job: Launched, victim: int) -> None:
    """Kills the victim and waits for its replacement."""
    os.kill(victim, signal.SIGKILL)

    def replaced() -> bool:
        members = job.members().values()
        return len(members) == RANKS and victim not in members

    job.wait_for(replaced, 120)


def wear(folder: Path, kills: int, drawn: random.Random) -> list[str]:
    """Kills ranks that many times. Returns the problems found afterwards."""
    before = shared_memory()
    script = [*SCRIPT, "--pause=0.02", "--epochs=1000000", f"--checkpoint={folder / 'saved'}"]
    options = [f"--nproc-per-node={RANKS}", "--max-restarts=1000000"]
    uses: list[Use] = []
    with Launched(folder / "job", options, script) as job:
        members = job.wait_for_size(RANKS, 120)
        oldest = members[0]
        for kill in tqdm(range(WARM + kills), unit="kill", disable=not sys.stderr.isatty()):
            others = [pid for pid in job.members().values() if pid != oldest]
            kill_and_wait(job, drawn.choice(others))
            if kill + 1 in (WARM, WARM + kills):
                uses.append(use_of(oldest))
        job.send(signal.SIGTERM)
        job.end()
        left = [pid for pid in job.pids() if Path(f"/proc/{pid}").exists()]
    first, last = uses
    for name in ("descriptors", "threads", "memory"):
        print(f"{name}: {getattr(first, name):g}, then {getattr(last, name):g}")
    problems = [f"process {pid} is left" for pid in left]
    problems += [f"{one} is left in shared memory" for one in shared_memory() - before]
    if last.descriptors > first.descriptors or last.threads > first.threads:
        problems.append(f"of descriptors and threads there are more: {first}, then {last}")
    if last.memory > first.memory + GROWTH:
        problems.append(f"memory has grown by more than {GROWTH:g} MiB: {first}, then {last}")
    return problems


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.wear",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--kills", type=int, default=100, metavar="N", help="default: 100")
    add("--seed", type=int, default=1, help="of whom is killed (default: 1)")
    return parser.parse_args()


def main() -> int:
    args = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="ringdist_wear_") as folder:
        problems = wear(Path(folder), args.kills, random.Random(args.seed))
    for problem in problems:
        print(f"FAILED: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
