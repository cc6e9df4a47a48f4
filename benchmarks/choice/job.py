"""Work of one launch of ranks. It is sent to them as JSON, and the result is kept under it."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.choice.cells import Cell
from benchmarks.net.layout import Layout


@dataclass(frozen=True)
class Job:
    layout: str
    rate: str
    rounds: int
    cells: tuple[Cell, ...]

    @property
    def name(self) -> str:
        return f"choice-{self.layout}-{self.rate}"

    @property
    def ranks(self) -> Layout:
        return Layout.parse(self.layout, least_hosts=1)

    @classmethod
    def of(cls, found: dict) -> Job:
        """Returns the job from the result of dataclasses.asdict() after a round trip through
        JSON."""
        cells = [
            Cell(**{k: tuple(v) if isinstance(v, list) else v for k, v in cell.items()})
            for cell in found["cells"]
        ]
        return cls(**{**found, "cells": tuple(cells)})
