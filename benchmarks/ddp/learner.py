"""Trains the model of one candidate step by step, and times steps of all ranks."""

from __future__ import annotations

import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from benchmarks import ranks
from benchmarks.ddp.candidates import AbsentError, Candidate, attach
from benchmarks.ddp.tasks import Task

BUCKET_MIB = 25


class Learner:
    """Trains a task with one candidate. All ranks create and step theirs in the same order.

    Raises AbsentError on all ranks.
    """

    def __init__(self, candidate: Candidate, task: Task, group: dist.ProcessGroup) -> None:
        torch.manual_seed(task.seed)
        self.candidate, self.task = candidate, task
        self.model = DistributedDataParallel(
            task.model(),
            process_group=group,
            bucket_cap_mb=BUCKET_MIB,
            gradient_as_bucket_view=True,  # avoids copies
            init_sync=False,  # parameters are equal because seeds are
        )
        self.attached = attach(candidate, self.model, group)
        self.optimizer = task.optimizer(self.model)
        self.steps = 0

    def step(self) -> None:
        batch = self.task.batch(self.steps)
        self.optimizer.zero_grad()
        self.task.loss(self.model, batch).backward()
        self.optimizer.step()
        if self.attached.after_step:
            self.attached.after_step()
        self.steps += 1


def make_learners(candidates: list[str], task: Task) -> tuple[list[Learner], dict[str, str]]:
    """Returns a learner per candidate, and reasons for candidates that the installed version does
    not support."""
    groups: dict[str, dist.ProcessGroup] = {"gloo": dist.group.WORLD}
    learners, absent = [], {}
    for text in candidates:
        candidate = Candidate.parse(text)
        if candidate.backend not in groups:
            groups[candidate.backend] = dist.new_group(backend=candidate.backend)
        try:
            learners.append(Learner(candidate, task, groups[candidate.backend]))
        except AbsentError as reason:
            absent[text] = str(reason)
    return learners, absent


class Clock:
    """Times work of all ranks, from the first that starts to the last that ends.

    The ranks share a clock because they are on one machine.
    """

    def __init__(self, barrier: Path) -> None:
        self._spin = ranks.SpinBarrier(barrier, dist.get_rank(), dist.get_world_size())
        self._spans: list[tuple[int, int]] = []

    def time(self, learner: Learner) -> None:
        """Times one step, which the ranks begin together."""
        dist.barrier()
        self._spin.wait()
        start = time.monotonic_ns()
        learner.step()
        self._spans.append((-start, time.monotonic_ns()))

    def seconds(self) -> list[float]:
        """Returns seconds of each step since the last call. All ranks call it."""
        spans = torch.tensor(self._spans, dtype=torch.int64).view(-1, 2)
        self._spans = []
        dist.all_reduce(spans, dist.ReduceOp.MAX)
        return [seconds / 1e9 for seconds in spans.sum(1).tolist()]
