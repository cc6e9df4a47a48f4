"""Train while ranks are killed, stopped, sent away and replaced at random; then check the training.

    python -m tests.chaos --minutes 10 --seed 7

Four ranks train examples/elastic_digits.py under `python -m torch_ringdist run`. The seed
determines the faults, which also hit rank 0 and recoveries in progress. It does not determine the
state of the ranks at a fault. In the end all ranks get the signal to leave. Two ranks then continue
from the checkpoint to the end of the epoch, and of epoch 100.

The losses of all steps must equal those of one rank without faults (only without --codec). Each
image must be in one step of each epoch, and no step may be committed twice. After each step the
parameters must be bit-identical on all ranks. The accuracy must be at least 0.97. Otherwise the
status is 1 and all logs are kept.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tqdm import tqdm

from tests.chaos import plan
from tests.chaos.digits import IMAGES, SCRIPT, STEPS_OF_EPOCH, TOLERANCE, undisturbed
from tests.chaos.launched import Launched, members_of
from tests.chaos.records import Course, read

RANKS = 4
# A hundred epochs reach this accuracy; missing epochs are trained at the end.
ACCURACY, EPOCHS = 0.97, 100
PAUSE = 0.02  # seconds added to each step
_START_LIMIT = 120.0


class Chaos:
    def __init__(self, folder: Path, seed: int, codec: str | None) -> None:
        self._folder, self._actions = folder, plan.draw(seed)
        self._codec = [f"--codec={codec}"] if codec else []
        self._steps, self._saved = folder / "steps", folder / "saved"
        self._replacements: list[Launched] = []
        self.done: Counter[str] = Counter()

    def run(self, seconds: float) -> int:
        """Trains for that many seconds and returns the number of steps."""
        variables = {"RINGDIST_PEER_TIMEOUT": str(plan.PEER_TIMEOUT)}
        options = [f"--nproc-per-node={RANKS}", "--max-restarts=1000000"]
        paced = [*self._script(), "--epochs=1000000", f"--pause={PAUSE}"]
        with contextlib.ExitStack() as stack:
            job = stack.enter_context(Launched(self._folder / "job", options, paced, variables))
            job.wait_for_size(RANKS, _START_LIMIT)
            end = time.monotonic() + seconds
            with tqdm(total=round(seconds), unit="s", disable=not sys.stderr.isatty()) as bar:
                while (left := end - time.monotonic()) > 0:
                    action = next(self._actions)
                    time.sleep(min(action.pause, left))
                    if self._act(job, action) == plan.LEAVE:
                        # The launcher does not restart this worker, so another launcher starts its
                        # replacement.
                        name = f"replacement-{len(self._replacements)}"
                        more = ["--nproc-per-node=1", "--max-restarts=1000000"]
                        more.append(f"--rdzv={job.address}")
                        one = Launched(self._folder / name, more, paced, variables)
                        self._replacements.append(stack.enter_context(one))
                    bar.n = round(seconds - left)
                    bar.refresh()
            everybody = [job, *self._replacements]
            for one in everybody:
                one.send(signal.SIGTERM)
            for one in everybody:
                one.end()
        return max((one.step for one in read(self._steps)), default=0)

    def finish(self, epochs: int) -> float:
        """Continues from the checkpoint without faults. Returns the final accuracy."""
        script = [*self._script(), "--resume", f"--epochs={epochs}"]
        with Launched(self._folder / "end", ["--nproc-per-node=2"], script) as job:
            if job.end() != 0:
                raise AssertionError(job.output())
            found = re.search(r"accuracy ([\d.]+) after", job.output())
        return float(found[1]) if found else 0.0

    def _script(self) -> list[str]:
        return [
            *SCRIPT,
            *self._codec,
            f"--log={self._steps}",
            f"--checkpoint={self._saved}",
        ]

    def course(self) -> Course:
        return Course(read(self._steps))

    def _act(self, job: Launched, action: plan.Action) -> str:
        """Applies the action. Returns a description of it, or "" if it was not possible."""
        ranks = members_of([job, *self._replacements])
        members = [ranks[rank] for rank in sorted(ranks) if Path(f"/proc/{ranks[rank]}").exists()]
        if len(members) < 2:
            return ""
        at = 0 if action.rank_0 else int(action.choice * len(members))
        chosen = [*members[at:], *members[:at]]
        what = action.what
        if what == plan.KILL:
            _send(chosen[0], signal.SIGKILL)
        elif what == plan.KILL_TWICE and len(members) > 2:
            _send(chosen[0], signal.SIGKILL)
            time.sleep(action.delay)
            _send(chosen[1], signal.SIGKILL)
        elif what == plan.KILL_MOST:
            for pid in chosen[1:]:
                _send(pid, signal.SIGKILL)
        elif what in (plan.STOP, plan.STOP_LONG):
            _send(chosen[0], signal.SIGSTOP)
            time.sleep(action.delay)
            _send(chosen[0], signal.SIGCONT)
        elif what == plan.LEAVE:
            _send(chosen[0], signal.SIGTERM)
        else:
            return ""
        self.done[what] += 1
        return what


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--minutes", type=float, default=10.0, metavar="N", help="default: 10")
    add("--seed", type=int, help="of what happens (default: a new one, which is printed)")
    add("--codec", help="compress the gradients, as int4 (default: no)")
    add("--folder", type=Path, help="for all logs (default: a new one, kept where it fails)")
    args = parser.parse_args()
    if args.seed is None:
        args.seed = random.randrange(1 << 30)
    return args


def main() -> int:
    args = parse_arguments()
    folder = args.folder or Path(tempfile.mkdtemp(prefix="ringdist_chaos_"))
    print(f"seed {args.seed}, {args.minutes:g} minutes, logs in {folder}", flush=True)
    chaos = Chaos(folder, args.seed, args.codec)
    trained = chaos.run(60 * args.minutes)
    epochs = max(EPOCHS, -(-trained // STEPS_OF_EPOCH) + 1)
    accuracy = chaos.finish(epochs)
    course = chaos.course()
    course.check_epochs(IMAGES, epochs)
    if args.codec is None:
        course.check_losses(undisturbed(folder / "undisturbed", epochs), TOLERANCE)
    if accuracy < ACCURACY:
        course.problems.append(f"the accuracy is {accuracy}, expected {ACCURACY}")
    print("; ".join(f"{what}: {often}" for what, often in sorted(chaos.done.items())))
    print(
        f"{len(course.steps)} steps in {len({one.generation for one in course.steps})} generations"
        f" of {min(course.sizes)} to {max(course.sizes)} ranks, accuracy {accuracy}"
    )
    for problem in course.problems:
        print(f"FAILED: {problem[:2000]}")
    if not course.problems and args.folder is None:
        shutil.rmtree(folder)
    return 1 if course.problems else 0


if __name__ == "__main__":
    sys.exit(main())
