"""Turns measured times into comparisons and a table. Times are in nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.choice.cells import Cell
from benchmarks.choice.job import Job
from benchmarks.choice.rank import CHOOSES
from benchmarks.report import duration, size_text

SHARE, AT_LEAST = 0.10, 2_000.0  # accepted delay, as a share of the best time and in nanoseconds
FORESEEN = 0.20  # accepted error of predictions, as a share of the measured time


@dataclass(frozen=True)
class Row:
    """Least times of one cell."""

    layout: str
    cell: Cell
    times: dict[str, float]  # by algorithm; CHOOSES for the planner's choice

    @property
    def best(self) -> str:
        return min(self.cell.algorithms, key=lambda name: self.times[name])

    @property
    def taken(self) -> float:
        return self.times[CHOOSES]

    @property
    def is_near(self) -> bool:
        """Returns True if the choice takes about as long as the best forced algorithm."""
        best = self.times[self.best]
        return self.taken <= max(best * (1 + SHARE), best + AT_LEAST)

    @property
    def is_same(self) -> bool:
        """Returns True if the best algorithm is the chosen one or equivalent, so that times differ
        by chance."""
        return self.best in self.cell.alike

    @property
    def foreseen(self) -> float | None:
        """The predicted duration divided by the measured one, or None without a prediction."""
        return None if self.cell.walked is None else self.cell.walked / self.taken

    def as_dict(self) -> dict:
        verdict = {"best": self.best, "near": self.is_near, "same": self.is_same}
        of_cell = {name: getattr(self.cell, name) for name in ("operation", "bytes", "choice")}
        return {
            **{"layout": self.layout, **of_cell, **verdict},
            **{"foreseen": self.foreseen, "times": self.times},
        }


def rows_of(result: dict) -> list[Row]:
    """Returns rows from a result of a Job's ranks with its settings."""
    job = Job.of(result["settings"])
    return [
        Row(job.layout, cell, {name: min(times) for name, times in found.items()})
        for cell, found in zip(job.cells, result["times"], strict=True)
    ]


_LINE = "{:15} {:>8}  {:22} {:>10} {:>9}  {}"


def table(rows: Sequence[Row]) -> str:
    """Returns the table of one layout. Forced algorithms come from the fastest on, and --help
    explains the marks."""
    titles = ("operation", "size", "choice", "its time", "foreseen", "")
    lines = [f"\n{rows[0].layout}", _LINE.format(*titles)]
    for row in rows:
        forced = sorted(row.cell.algorithms, key=lambda name: row.times[name])
        others = ", ".join(f"{name} {duration(row.times[name])}" for name in forced)
        mark = "" if row.is_near else "= " if row.is_same else "! "
        lines.append(
            _LINE.format(
                *(row.cell.operation, size_text(row.cell.bytes), row.cell.choice),
                duration(row.taken),
                "-" if row.foreseen is None else f"{row.foreseen:.2f}",
                f"{mark}{others}" if len(forced) > 1 else "",
            )
        )
    return "\n".join([*lines, summary(rows)])


def summary(rows: Sequence[Row]) -> str:
    chosen = [row for row in rows if len(row.cell.algorithms) > 1]
    near = sum(row.is_near for row in chosen)
    same = sum(row.is_same and not row.is_near for row in chosen)
    said = [row.foreseen for row in rows if row.foreseen is not None]
    right = sum(1 - FORESEEN <= ratio <= 1 + FORESEEN for ratio in said)
    return (
        f"{near} of {len(chosen)} choices within {SHARE:.0%} or {duration(AT_LEAST)} of the best; "
        f"of the others {same} (=) are the best one themselves or come to the same, timed twice, "
        f"and {len(chosen) - near - same} (!) are not\n"
        f"{right} of {len(said)} times foreseen within {FORESEEN:.0%}"
    )
