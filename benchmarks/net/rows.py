"""Turns measured times of the ranks into rows, a table and JSON. Times are in nanoseconds."""

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
    cpu: float  # time of all ranks' threads per call
    least_bytes: float | None  # minimum of bytes on the busiest link, encoded; None if unknown
    # Bytes per nanosecond of plain sockets in one direction. It is the larger value of transfers in
    # one direction and in both, because both are slower if the cores are the limit.
    wire: float

    @property
    def of_wire(self) -> float | None:
        """Least time on the link divided by the median. None for sizes so small that the ratio has
        no meaning."""
        if not self.least_bytes or self.bytes < SOCKET_BYTES:
            return None
        return self.least_bytes / self.wire / self.median

    def as_dict(self) -> dict:
        return {**asdict(self), "of_wire": self.of_wire}


def rows_of(result: dict) -> list[Row]:
    """Returns rows from a result of a Job's ranks with its settings."""
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
    """Returns the table of one job.

    The column "by gloo" is gloo's median divided by this one, and cpu is the time of all ranks
    together per call.
    """
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
    """Writes the JSON file. `absent` has reasons for variants that could not take part."""
    found = {"machine": machine, "absent": absent, "rows": [row.as_dict() for row in rows]}
    path.write_text(json.dumps(found, indent=1) + "\n")
