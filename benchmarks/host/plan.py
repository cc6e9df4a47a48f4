"""Work of one run, which is sent to the ranks as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass
class Plan:
    """Sizes are bytes of a rank's longest tensor in fp32, and times are seconds per operation and
    size."""

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
