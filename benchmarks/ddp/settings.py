"""What one run over the hosts is asked to do; its result is kept under these settings."""

from __future__ import annotations

import json
from dataclasses import dataclass

from benchmarks.ddp.links import ONE_HOST


@dataclass(frozen=True)
class Training:
    """To the target accuracy, or on to the last step: one rate, one seed, all candidates."""

    rate: str
    seed: int
    candidates: tuple[str, ...]
    steps: int  # at most
    target: float
    to_target: bool  # a candidate that has reached the target is done
    batch: int = 32
    hosts: int = 4
    kind: str = "training"

    @property
    def name(self) -> str:
        return f"training-{self.rate}-seed{self.seed}"


@dataclass(frozen=True)
class Stepping:
    """Times of interleaved steps: one cell of the critics' table."""

    rate: str  # or ONE_HOST
    task: str
    batch: int
    candidates: tuple[str, ...]
    rounds: int = 20
    warm_up: int = 5
    auto_warm_up: int = 20  # steps of "auto" alone, before the others: it decides from them
    rarely: tuple[str, ...] = ()  # candidates that are timed a quarter as often
    seed: int = 1
    hosts: int = 4  # ranks, where there is one host or each has several
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
