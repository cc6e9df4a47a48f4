"""What a run measures: it goes to the ranks as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass
class Plan:
    """Sizes in bytes of the longest tensor of a rank, fp32; seconds per operation and size."""

    operations: list[str]
    sizes: list[int]
    peers: list[str]
    world: int
    seconds: float
    port: int = 0
    barrier: str = ""
    flags: str = ""
    result: str = ""

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Plan:
        return cls(**json.loads(path.read_text()))
