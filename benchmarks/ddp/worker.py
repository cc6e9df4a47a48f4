"""One rank's part. `python -m benchmarks.ddp` starts it through torchrun on every host."""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from tqdm import tqdm

from benchmarks import report
from benchmarks.ddp.learner import Clock, Learner, make_learners
from benchmarks.ddp.memory import prepare_heap
from benchmarks.ddp.settings import Settings, Stepping, Training, from_text
from benchmarks.ddp.tasks import TASKS, Mlp

LIMIT = timedelta(seconds=300)
# Bytes of a candidate. They have parameters, gradients, buckets before and after DDP rebuilds them,
# momentum, residual, and data in flight. Each takes 21 MB for the larger network; activations are
# added.
EACH = {"mlp5m": 200 << 20, "text": 50 << 20}
BAR = "{l_bar}{bar}| {n:.0f}/{total:.0f} steps [{elapsed}<{remaining}] {postfix}"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--settings", type=from_text, required=True, help="JSON of Training or Stepping")
    add("--barrier", type=Path, required=True, help="a file of zeros that all ranks share")
    add("--json", type=Path, required=True, metavar="FILE", help="rank 0 writes its results here")
    return parser.parse_args()


def rotated(learners: list[Learner], turn: int) -> list[Learner]:
    """Returns the learners in the order for a turn, so that none always follows the same other."""
    cut = turn % len(learners)
    return learners[cut:] + learners[:cut]


class Course:
    """A learner on its way to the target."""

    def __init__(self, learner: Learner, settings: Training) -> None:
        self.learner, self.settings = learner, settings
        self.seconds: list[float] = []  # seconds of each step
        self.accuracies: list[tuple[int, float]] = []  # (steps done, held-out accuracy)
        self.done = False

    def epoch(self, clock: Clock, progress: tqdm) -> None:
        task = self.learner.task
        assert isinstance(task, Mlp)
        for _ in range(task.steps_per_epoch):
            clock.time(self.learner)
            self._evaluate(task)
            progress.update()
            if self.done:
                break
        self.seconds += clock.seconds()
        if self.done:
            progress.update(self.settings.steps - self.learner.steps)

    def _evaluate(self, task: Mlp) -> None:
        steps = self.learner.steps
        # Each rank evaluates a share of the images, so all must have the same parameters.
        if self.learner.candidate.averages_at(steps - 1):
            right = torch.tensor(task.right(self.learner.model.module))
            dist.all_reduce(right)
            self.accuracies.append((steps, int(right) / task.TEST_IMAGES))
        last = self.accuracies[-1][1] if self.accuracies else 0.0
        reached = self.settings.to_target and last >= self.settings.target
        self.done = reached or steps >= self.settings.steps


def train(settings: Training, learners: list[Learner], clock: Clock, progress: tqdm) -> dict:
    """Trains the learners epoch by epoch, in turns. Evaluation is not timed."""
    courses = {learner: Course(learner, settings) for learner in learners}
    for turn in itertools.count():
        due = [learner for learner in learners if not courses[learner].done]
        if not due:
            break
        for learner in rotated(due, turn):
            progress.set_postfix_str(learner.candidate.text)
            courses[learner].epoch(clock, progress)
            gc.collect()
    return {
        learner.candidate.text: {
            "seconds": [round(value, 6) for value in course.seconds],
            "accuracies": course.accuracies,
        }
        for learner, course in courses.items()
    }


def time_steps(settings: Stepping, learners: list[Learner], clock: Clock, progress: tqdm) -> dict:
    """Times one step of each learner per round. The first rounds are dropped. A learner that skips
    a round gets None."""
    for learner in learners:
        if learner.candidate.codec == "auto":
            for _ in range(settings.auto_warm_up):
                learner.step()
    seconds: dict[str, list[float | None]] = {each.candidate.text: [] for each in learners}
    for number in range(settings.warm_up + settings.rounds):
        due = [each for each in learners if takes_part(each.candidate.text, number, settings)]
        for learner in rotated(due, number):
            progress.set_postfix_str(learner.candidate.text)
            clock.time(learner)
            progress.update()
        taken = dict(zip(rotated(due, number), clock.seconds(), strict=True))
        gc.collect()
        if number >= settings.warm_up:
            for learner in learners:
                seconds[learner.candidate.text].append(taken.get(learner))
    return {
        each.candidate.text: {
            "seconds": seconds[each.candidate.text],
            "codec": each.attached.codec() if each.candidate.codec == "auto" else None,
        }
        for each in learners
    }


def takes_part(candidate: str, number: int, settings: Stepping) -> bool:
    if candidate not in settings.rarely:
        return True
    few = max(1, settings.rounds // 4)
    return settings.warm_up - 1 <= number < settings.warm_up + few


def task_of(settings: Settings) -> str:
    return settings.task if isinstance(settings, Stepping) else "mlp5m"


def measure(settings: Settings, clock: Clock) -> dict:
    rank, world = dist.get_rank(), dist.get_world_size()
    of_task = (settings.batch, rank, world, settings.seed)
    task = TASKS[task_of(settings)](*of_task)
    learners, absent = make_learners(list(settings.candidates), task)
    if isinstance(settings, Training):
        total = settings.steps * len(learners)
    else:
        numbers = range(settings.warm_up + settings.rounds)
        names = [each.candidate.text for each in learners]
        total = sum(takes_part(text, n, settings) for text in names for n in numbers)
    gc.disable()
    silent = None if rank == 0 else True  # None disables the bar if stderr is not a terminal
    with tqdm(total=total, disable=silent, leave=False, bar_format=BAR) as progress:
        if isinstance(settings, Training):
            results = train(settings, learners, clock, progress)
        else:
            results = time_steps(settings, learners, clock, progress)
    gc.enable()
    return {"machine": report.machine(), "candidates": results, "absent": absent}


def main() -> None:
    args = parse_arguments()
    torch.set_num_threads(1)
    if not prepare_heap(EACH[task_of(args.settings)] * len(args.settings.candidates)):
        print("memory: not touched beforehand (no glibc); first steps are slow", file=sys.stderr)
    dist.init_process_group("gloo", timeout=LIMIT)
    results = measure(args.settings, Clock(args.barrier))
    if dist.get_rank() == 0:
        args.json.write_text(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
