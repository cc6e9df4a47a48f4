"""Work of one launch of ranks. It is sent to them as JSON, and the result is kept under it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from benchmarks import report
from benchmarks.kept import to_text
from benchmarks.net.layout import Layout
from benchmarks.net.variants import Variant


@dataclass(frozen=True)
class Job:
    """All operations of one size by all variants, on one layout of hosts."""

    rate: str
    congestion: str
    layout: str
    bytes: int  # size of a rank's longest tensor
    operations: tuple[str, ...]
    variants: tuple[str, ...]
    seconds: float  # time of calls for each operation and variant
    rounds: int  # number of rounds that share this time
    kind: str = "operations"

    @property
    def name(self) -> str:
        size = report.size_text(self.bytes).replace(" ", "")
        return f"{self.kind}-{self.layout}-{self.rate}-{size}"

    @property
    def ranks(self) -> Layout:
        return Layout.parse(self.layout)

    @property
    def parsed(self) -> list[Variant]:
        return [Variant.parse(text) for text in self.variants]

    @property
    def needs_mpi(self) -> bool:
        return any(variant.backend == "openmpi" for variant in self.parsed)

    def text(self) -> str:
        return to_text(self)

    @classmethod
    def of(cls, text: str) -> Job:
        fields = json.loads(text)
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()})
