"""Turns what the ranks timed into rows, a table and JSON. Times are in nanoseconds."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.net.bound import coded_bytes
from benchmarks.net.job import Job
from benchmarks.net.operations import SOCKET_BYTES
from benchmarks.net.variants import Variant
from benchmarks.report import duration, size_text


@dataclass(frozen=True)
class Row:
    """One variant of one operation."""

    rate: str
    layout: str
    operation: str
    bytes: int
    variant: str
    calls: int
    minimum: float
    median: float
    cpu: float  # of all ranks' threads, per call
    least_bytes: float | None  # that must pass the busiest line, encoded; None: not known
    # Bytes per nanosecond that plain sockets carried, one way or each of both, whichever were more:
    # where the cores are the limit and not the line, both ways are less.
    wire: float

    @property
    def of_wire(self) -> float | None:
        """The least time on the wire by the median; None where so few bytes say nothing."""
        if not self.least_bytes or self.bytes < SOCKET_BYTES:
            return None
        return self.least_bytes / self.wire / self.median

    def as_dict(self) -> dict:
        return {**asdict(self), "of_wire": self.of_wire}


def rows_of(result: dict) -> list[Row]:
    """`result`: what a Job's ranks found, with its settings."""
    job = Job.of(json.dumps(result["settings"]))
    socket_times = result["socket_times"].values()
    wire = max(result["socket_bytes"] / statistics.median(times) for times in socket_times)
    return [
        Row(
            *(job.rate, job.layout, timed["operation"], job.bytes, timed["variant"]),
            calls=len(timed["times"]),
            minimum=min(timed["times"]),
            median=statistics.median(timed["times"]),
            cpu=timed["cpu"] / len(timed["times"]),
            least_bytes=coded_bytes(
                timed["operation"], job.bytes, job.ranks, Variant.parse(timed["variant"])
            ),
            wire=wire,
        )
        for timed in result["timed"]
    ]


_TITLES = ("operation", "variant", "calls", "minimum", "median", "by gloo", "of wire", "cpu")
_LINE = "{:15} {:24} {:>5}  {:>10} {:>10}  {:>8}  {:>7}  {:>10}"


def table(rows: Sequence[Row]) -> str:
    """Of one job. "by gloo": its median by this one's; cpu: of all ranks together, per call."""
    first = rows[0]
    lines = [
        f"\n{first.layout}, {first.rate}, {size_text(first.bytes)}: "
        f"plain sockets carry {8 * first.wire:.3f} Gb/s",
        _LINE.format(*_TITLES),
    ]
    gloo = {row.operation: row.median for row in rows if row.variant == "gloo"}
    for row in rows:
        other = gloo.get(row.operation)
        lines.append(
            _LINE.format(
                *(row.operation, row.variant, row.calls),
                *(duration(row.minimum), duration(row.median)),
                f"{other / row.median:.2f}" if other else "-",
                f"{row.of_wire:.2f}" if row.of_wire else "-",
                duration(row.cpu),
            )
        )
    return "\n".join(lines)


def save(path: Path, machine: dict, absent: dict[str, str], rows: Sequence[Row]) -> None:
    """`absent`: variants that could not take part, and why."""
    found = {"machine": machine, "absent": absent, "rows": [row.as_dict() for row in rows]}
    path.write_text(json.dumps(found, indent=1) + "\n")
