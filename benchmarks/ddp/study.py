"""Reads the numbers of steps that codecs need from benchmarks.compression_study.

`python -m benchmarks.compression_study --critics` writes the file that is read here.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

CRITICS = Path("build/compression-study/critics.json")


@dataclass(frozen=True)
class Found:
    """Result of one codec, task and batch size."""

    steps: int | None  # steps to the target; None if it was not reached
    more_steps: float  # steps relative to uncompressed; inf if not reached
    metric: float | None  # accuracy or validation loss; None if it diverged


@dataclass(frozen=True)
class Study:
    """Results by task, batch per rank, and codec. It is empty without a study."""

    found: dict[tuple[str, int, str], Found] = field(default_factory=dict)
    commit: str = ""

    @classmethod
    def load(cls, path: Path) -> Study:
        if not path.exists():
            return cls()
        found, told = {}, json.loads(path.read_text())
        for row in told["rows"]:
            plain = row["steps_uncompressed"]
            if plain:
                steps = row["steps_to_target"]
                more = math.inf if steps is None else steps / plain
                key = row["task"], row["batch"], row["variant"]
                found[key] = Found(steps, more, row["metric"])
        return cls(found, told["commit"])

    def more_steps(self, task: str, batch: int, codec: str) -> float | None:
        """Returns the factor of steps, or None without a study. It is at least 1, because a smaller
        factor is chance."""
        found = self.found.get((task, batch, codec))
        return None if found is None else max(1.0, found.more_steps)
