"""Runs examples/elastic_digits.py with processes that die at chosen moments.

    python -m torch_ringdist run --nproc-per-node=4 tests/chaos/dying.py --marks=FOLDER \
        --deaths 20:step:0,3 30:proposing:2:8 40:joining:1 -- [arguments of the example]

Each death is STEP:WHEN:RANKS[:MS]. Before such a step, all ranks wait until the group has its
original size. A death that has happened leaves a file in FOLDER and does not happen again.

step: these ranks die, each in the middle of the step.

committed: this rank dies when it has committed the step. No other rank has committed it, nor can
it.

proposing: this rank dies in the step. Rank 0 dies MS after it has begun to agree with the others on
the survivors, which takes about 10 ms.

joining: this rank dies in the step, and so does its successor while it receives the state.

giving: this rank dies in the step, and so does the rank that sends the state to its successor.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import elastic_digits
import torch
import torch.distributed as dist
from elastic_digits import Trainer

import torch_ringdist
from torch_ringdist import elastic
from torch_ringdist.elastic import _elastic_loop

COMMITTED, PROPOSING, JOINING, GIVING = "committed", "proposing", "joining", "giving"


@dataclass(frozen=True)
class Death:
    step: int
    when: str
    ranks: tuple[int, ...]
    delay: float  # seconds

    @property
    def first(self) -> str:
        """Returns the name of the mark file."""
        return f"{self.step}-{self.when}"

    @property
    def second(self) -> str:
        """Returns the mark file of the second death, which follows from the first."""
        return f"{self.first}-second"


def parse_death(text: str) -> Death:
    step, when, ranks, *delay = text.split(":")
    milliseconds = float(delay[0]) if delay else 0.0
    return Death(int(step), when, tuple(map(int, ranks.split(","))), milliseconds / 1000)


def parse_arguments() -> argparse.Namespace:
    """Parses the options of this script and leaves the example's arguments in sys.argv."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--deaths", type=parse_death, nargs="+", required=True)
    parser.add_argument("--marks", type=Path, required=True)
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    sys.argv[1:] = args.rest[1:]
    return args


class Plan:
    """Deaths that are planned and those that have happened. All ranks of a generation have equal
    plans."""

    def __init__(self, deaths: list[Death], marks: Path) -> None:
        self._deaths = {one.step: one for one in deaths}
        self._marks = marks
        self._marks.mkdir(exist_ok=True)
        self._done: set[str] = set()

    def look(self) -> None:
        """Reads the marks of deaths that have happened, at the start of a generation."""
        self._done = {one.name for one in self._marks.iterdir()}

    def at(self, step: int) -> Death | None:
        """Returns the death planned for this step, or None."""
        death = self._deaths.get(step)
        return None if death is None or death.first in self._done else death

    def second(self) -> Death | None:
        """Returns a death that has happened and has not been followed by its second death, or
        None."""
        self.look()
        followed = [one for one in self._deaths.values() if one.when in (JOINING, GIVING)]
        open_ones = [one for one in followed if {one.first, one.second} & self._done == {one.first}]
        return open_ones[0] if open_ones else None

    def die(self, name: str) -> None:
        (self._marks / name).touch()
        os.kill(os.getpid(), signal.SIGKILL)


class Dying(Trainer):
    def __init__(self, args: argparse.Namespace, plan: Plan) -> None:
        super().__init__(args)
        self.plan = plan
        self.size = int(os.environ["LOCAL_WORLD_SIZE"])

    def state(self) -> elastic.State:
        state = super().state()
        state.optimizer.register_step_pre_hook(lambda *_: self.before_the_update(state))
        return state

    def on_change(self, change: elastic.Change) -> None:
        super().on_change(change)
        self.plan.look()

    def step(
        self, model: torch.nn.Module, state: elastic.State, x: torch.Tensor, y: torch.Tensor
    ) -> float:
        death = self.plan.at(state.steps + 1)
        while death and dist.get_world_size() < self.size:
            dist.all_reduce(torch.ones(1))  # fails when a newcomer arrives
            time.sleep(0.05)
        loss = super().step(model, state, x, y)
        if death:
            assert death.when == COMMITTED
            self.plan.die(death.first)
        return loss

    def before_the_update(self, state: elastic.State) -> None:
        """Called when all collectives of the step have ended."""
        death = self.plan.at(state.steps + 1)
        if death is None:
            return
        mine = dist.get_rank() in death.ranks
        if mine and death.when == COMMITTED:
            return
        if mine:
            self.plan.die(death.first)
        if death.when == PROPOSING and dist.get_rank() == 0:
            torch_ringdist.shrink = dying_in(torch_ringdist.shrink, death.delay)
        dist.all_reduce(torch.ones(1))  # without the ranks that die


def dying_in(function: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    """Wraps `function` so that the process is killed if it runs longer than `seconds`."""

    def dying(*args: Any, **named: Any) -> Any:
        timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
        timer.daemon = True
        timer.start()
        return function(*args, **named)

    return dying


def die_in_transfers(plan: Plan) -> None:
    """Makes the process die in a transfer of state, after the outline and during the state
    itself."""
    transfer, send = _elastic_loop.transfer, dist._broadcast_coalesced

    def dying(state: elastic.State, company: Any) -> None:
        death = plan.second() if company.has_trained and company.newcomers else None
        if death is not None:
            who = company.newcomers if death.when == JOINING else [company.source]
            if dist.get_rank() in who:
                dist._broadcast_coalesced = lambda *_: plan.die(death.second)
        try:
            transfer(state, company)
        finally:
            dist._broadcast_coalesced = send

    _elastic_loop.transfer = dying


def main() -> int:
    args = parse_arguments()
    plan = Plan(args.deaths, args.marks)
    die_in_transfers(plan)
    elastic_digits.Trainer = lambda args: Dying(args, plan)
    return elastic_digits.main()


if __name__ == "__main__":
    sys.exit(main())
