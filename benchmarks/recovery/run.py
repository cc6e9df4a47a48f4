"""Runs one plan: starts ranks, kills victims, and evaluates the survivors."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from benchmarks.recovery.answer import Answer
from benchmarks.recovery.plan import SIZE, Plan
from benchmarks.recovery.processes import Body, Failed, Process, Processes, Tell
from benchmarks.recovery.verify import Verify

Life = Callable[[Plan, int, str, Callable[[], None], Tell], None]


@dataclass(frozen=True)
class Peer:
    """A measured implementation."""

    live: Life  # body of a rank
    verify: Verify
    serve: Body | None = None  # body of a server that is not killed and reports its address
    leaves: bool = True  # survivors end by themselves after their report; else they are killed


@dataclass(frozen=True)
class Outcome:
    plan: Plan
    killed_at: tuple[float, ...]
    answers: tuple[Answer, ...]
    problems: tuple[str, ...]
    logs: str  # logs of a run with problems

    @property
    def seconds(self) -> float:
        """Seconds from the last kill until all survivors have the next sum."""
        return max(answer.recovered_at for answer in self.answers) - self.killed_at[-1]

    def as_json(self) -> str:
        plan = asdict(self.plan)
        return json.dumps(
            {
                **plan,
                "kind": self.plan.kind,
                "seconds": self.seconds if self.answers else None,
                "killed_at": self.killed_at,
                "answers": [asdict(answer) for answer in self.answers],
                "problems": self.problems,
            }
        )


class Run:
    def __init__(self, plan: Plan, peer: Peer, children: int, processes: Processes) -> None:
        self._plan, self._peer, self._children = plan, peer, children
        self._processes = processes
        self.killed_at: list[float] = []
        self.answers: tuple[Answer, ...] = ()

    def go(self) -> list[str]:
        """Runs the plan and returns the problems."""
        ranks = self._launch()
        self._processes.listen(ranks)  # waits until they are ready
        for kill in self._plan.kills:
            time.sleep(kill.pause)
            self.killed_at.append(time.monotonic())
            os.kill(ranks[kill.victim].pid, signal.SIGKILL)
        survivors = [ranks[rank] for rank in self._plan.survivors]
        told = self._processes.listen(survivors)
        self.answers = tuple(told[process.name] for process in survivors)
        pids = {rank: process.pid for rank, process in enumerate(ranks)}
        found = self._peer.verify(self._plan, self.answers, pids)
        return found + self._ends(survivors)

    def _launch(self) -> list[Process]:
        address, ranks = "", []
        if self._peer.serve:
            server = self._processes.fork("server", self._peer.serve)
            address = self._processes.listen([server])[server.name]
        for rank in range(SIZE):
            body = partial(self._peer.live, self._plan, rank, address, self._fork_children)
            ranks.append(self._processes.fork(f"rank {rank}", body))
            if not address:
                address = self._processes.listen(ranks)[ranks[0].name]
        return ranks

    def _fork_children(self) -> None:
        """Forks the sleeping children of a rank; runs in the rank."""
        for _ in range(self._children):
            self._processes.fork_sleeper()

    def _ends(self, survivors: list[Process]) -> list[str]:
        if not self._peer.leaves:
            return []
        ends = {process.name: self._processes.end_of(process) for process in survivors}
        return [f"{name} {end}" for name, end in ends.items() if end != "ended with status 0"]


def run(plan: Plan, peer: Peer, children: int, seconds: float) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="ringdist_recovery_") as folder:
        processes = Processes(Path(folder), seconds)
        one = Run(plan, peer, children, processes)
        found: list[str] = []
        try:
            with processes:
                try:
                    found += one.go()
                except Failed as error:
                    found.append(str(error))
        except Failed as error:
            found.append(str(error))
        kills = ", ".join(f"{at:.6f}" for at in one.killed_at)
        logs = f"kills at {kills or '-'}\n{processes.logs()}" if found else ""
    return Outcome(plan, tuple(one.killed_at), one.answers, tuple(found), logs)
