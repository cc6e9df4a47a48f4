"""Settings of one run over the hosts. Its result is kept under them."""

from __future__ import annotations

import json
from dataclasses import dataclass

from benchmarks.ddp.links import ONE_HOST


@dataclass(frozen=True)
class Training:
    """Trains all candidates at one rate with one seed, to the target accuracy or to the last
    step."""

    rate: str
    seed: int
    candidates: tuple[str, ...]
    steps: int  # limit
    target: float
    to_target: bool  # ends a candidate that has reached the target
    batch: int = 32
    hosts: int = 4
    kind: str = "training"

    @property
    def name(self) -> str:
        return f"training-{self.rate}-seed{self.seed}"


@dataclass(frozen=True)
class Stepping:
    """Times interleaved steps, for one cell of the critics' table."""

    rate: str  # rate of the links, or ONE_HOST
    task: str
    batch: int
    candidates: tuple[str, ...]
    rounds: int = 20
    warm_up: int = 5
    auto_warm_up: int = 20  # first steps of "auto" alone, on which it bases its choice
    rarely: tuple[str, ...] = ()  # candidates that are timed in a quarter of the rounds
    seed: int = 1
    hosts: int = 4  # number of ranks, if there is one host or each has several
    per_host: int = 1
    kind: str = "stepping"

    @property
    def name(self) -> str:
        kind = ONE_HOST if self.rate == ONE_HOST else f"{self.kind}-{self.rate}"
        if self.kind == "steps":
            kind = f"steps-{self.hosts // self.per_host}x{self.per_host}-{self.rate}"
        return f"{kind}-{self.task}-batch{self.batch}"


Settings = Training | Stepping


def from_text(text: str) -> Settings:
    fields = json.loads(text)
    kind = {"training": Training, "stepping": Stepping, "steps": Stepping}[fields["kind"]]
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()})
