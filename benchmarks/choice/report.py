"""Turns what the ranks timed into verdicts and a table. Times are in nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.choice.cells import Cell
from benchmarks.choice.job import Job
from benchmarks.choice.rank import CHOOSES
from benchmarks.report import duration, size_text

SHARE, AT_LEAST = 0.10, 2_000.0  # of the best time, and nanoseconds, that a choice may take more


@dataclass(frozen=True)
class Row:
    """One cell; minima."""

    layout: str
    cell: Cell
    times: dict[str, float]  # by algorithm; of the choice's own time, CHOOSES

    @property
    def best(self) -> str:
        return min(self.cell.algorithms, key=lambda name: self.times[name])

    @property
    def taken(self) -> float:
        return self.times[CHOOSES]

    @property
    def is_near(self) -> bool:
        """The choice takes about as long as the best that was forced."""
        best = self.times[self.best]
        return self.taken <= max(best * (1 + SHARE), best + AT_LEAST)

    @property
    def is_same(self) -> bool:
        """The best is what was chosen: its two times differ by chance."""
        return self.best == self.cell.choice

    def as_dict(self) -> dict:
        verdict = {"best": self.best, "near": self.is_near, "same": self.is_same}
        of_cell = {name: getattr(self.cell, name) for name in ("operation", "bytes", "choice")}
        return {"layout": self.layout, **of_cell, **verdict, "times": self.times}


def rows_of(result: dict) -> list[Row]:
    """`result`: what a Job's ranks found, with its settings."""
    job = Job.of(result["settings"])
    return [
        Row(job.layout, cell, {name: min(times) for name, times in found.items()})
        for cell, found in zip(job.cells, result["times"], strict=True)
    ]


_LINE = "{:15} {:>8}  {:22} {:>10}  {}"


def table(rows: Sequence[Row]) -> str:
    """Of one layout; a star before the best, an exclamation mark where the choice is not near."""
    lines = [f"\n{rows[0].layout}", _LINE.format("operation", "size", "choice", "its time", "")]
    for row in rows:
        forced = sorted(row.cell.algorithms, key=lambda name: row.times[name])
        others = ", ".join(f"{name} {duration(row.times[name])}" for name in forced)
        mark = "" if row.is_near else "= " if row.is_same else "! "
        lines.append(
            _LINE.format(
                *(row.cell.operation, size_text(row.cell.bytes), row.cell.choice),
                *(duration(row.taken), f"{mark}{others}"),
            )
        )
    return "\n".join([*lines, summary(rows)])


def summary(rows: Sequence[Row]) -> str:
    near = sum(row.is_near for row in rows)
    same = sum(row.is_same and not row.is_near for row in rows)
    return (
        f"{near} of {len(rows)} choices within {SHARE:.0%} or {duration(AT_LEAST)} of the best; "
        f"of the others {same} (=) are the best one themselves, timed twice, "
        f"and {len(rows) - near - same} (!) are not"
    )
