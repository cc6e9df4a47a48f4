"""Execution of one sequence on one rank of the pool."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from support.rank import new_group

from tests.differential import moving, reducing
from tests.differential.call import Call, Here
from tests.differential.plan import Plan, Region, Step

OPERATIONS = {**moving.OPERATIONS, **reducing.OPERATIONS}
# Groups that sequences share, by their ranks.
_kept: dict[tuple[int, ...], Any] = {}


class Execution:
    """Starts the steps in order, waits for each when it is due, and records problems.

    A wrong result does not end the sequence, because the other ranks would wait for this one.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rank = dist.get_rank()
        self.wrong: list[str] = []
        self._due: list[tuple[int, Callable[[], None]]] = []
        self._groups = self._make_groups()

    def run(self) -> None:
        number = 0
        for at, step in enumerate(self.plan.steps):
            if self.rank in step.group:
                if isinstance(step, Region):
                    self._region(at, step, number)
                else:
                    self._step(at, step, number)
            number += len(step.steps) if isinstance(step, Region) else 1
            self._settle(at)
        self._settle(None)
        if self.plan.fresh_groups:
            for members, group in self._groups.items():
                if self.rank in members:
                    dist.destroy_process_group(group)

    def _make_groups(self) -> dict[tuple[int, ...], Any]:
        groups = {} if self.plan.fresh_groups else _kept
        for members in self.plan.groups():
            if members not in groups:
                groups[members] = new_group(ranks=members)
        return groups

    def _here(self, step: Step, number: int) -> Here:
        group = self._groups[step.group]
        me = step.group.index(self.rank)
        return Here(step, group, me, self.plan.seed, number, self.plan.device)

    def _step(self, at: int, step: Step, number: int) -> None:
        call = OPERATIONS[step.op](self._here(step, number))
        if call is None:
            return
        work = call.start(step.lag > 0)
        self._due.append((at + step.lag, lambda: self._finish(f"step {at}", call, work)))

    def _region(self, at: int, region: Region, number: int) -> None:
        calls = []
        for i, step in enumerate(region.steps):
            if call := OPERATIONS[step.op](self._here(step, number + i)):
                calls.append((f"step {at}, call {i}", call))
        if not calls and region.style == "batch":
            return
        start, device = _STYLES[region.style], torch.device(self.plan.device)
        works = start(self._groups[region.group], [call for _, call in calls], device)

        def finish() -> None:
            for work in works:
                work.wait()
            for name, call in calls:
                self._finish(name, call, None)

        self._due.append((at + region.lag, finish))

    def _settle(self, now: int | None) -> None:
        """Waits for the steps that are due, or for all if `now` is None."""
        ready = [finish for due, finish in self._due if now is None or due <= now]
        self._due = [] if now is None else [entry for entry in self._due if entry[0] > now]
        for finish in ready:
            finish()

    def _finish(self, name: str, call: Call, work: Any) -> None:
        if work is not None:
            work.wait()
            # PyTorch's all_reduce_coalesced returns a Future
            done = work.done() if isinstance(work, torch._C.Future) else work.is_completed()
            if not done and self.plan.device == "cpu":  # on a device, only the stream has waited
                self.wrong.append(f"{name}: not complete after wait()")
        differences = [(what, box.differs(wanted)) for what, box, wanted in call.expected]
        found = [f"{what}: {text}" for what, text in differences if text]
        if call.check and (text := call.check(work)):
            found.append(text)
        self.wrong += [f"{name}: {text}" for text in found]


def _mixed(group: Any, calls: list[Call], device: torch.device) -> list[Any]:
    group._start_coalescing(device)
    works = [call.start(True) for call in calls]
    return [group._end_coalescing(device), *works]


def _managed(group: Any, calls: list[Call], _: torch.device) -> list[Any]:
    with dist.distributed_c10d._coalescing_manager(group, async_ops=True) as manager:
        for call in calls:
            call.start(False)
    return [manager]


def _batched(group: Any, calls: list[Call], _: torch.device) -> list[Any]:
    return dist.batch_isend_irecv([call.batched() for call in calls])


# Each starts the calls of a region, with tensors on the device, and returns the works to wait for.
_STYLES = {"region": _mixed, "manager": _managed, "batch": _batched}


def execute(text: str) -> None:
    """Runs a plan given as JSON. Raises AssertionError with all problems on this rank."""
    plan = Plan.from_json(text)
    with warnings.catch_warnings():
        # PyTorch's deprecation warnings are not under test here.
        warnings.simplefilter("ignore")
        execution = Execution(plan)
        execution.run()
    assert not execution.wrong, "\n".join(execution.wrong)
