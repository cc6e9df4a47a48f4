"""Turns measurements of the ranks into rows, a table and JSON. Times are in nanoseconds."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.net.variants import TCP
from benchmarks.report import duration, size_text


@dataclass(frozen=True)
class Spread:
    """Distribution of one operation's time over all repetitions."""

    minimum: float
    lower: float  # quartiles
    median: float
    upper: float
    maximum: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        if len(samples) == 1:
            return cls(*samples * 5)
        lower, median, upper = statistics.quantiles(samples, method="inclusive")
        return cls(min(samples), lower, median, upper, max(samples))


@dataclass(frozen=True)
class Measured:
    """One variant at one size."""

    bytes: int
    variant: str
    times: Spread
    operations: int
    sent: float  # bytes per operation on a host's interface, averaged over hosts
    received: float
    payload: float | None  # expected bytes that a host sends per operation, if they can be computed
    error: float  # |result - exact sum|^2 / |exact sum|^2


@dataclass(frozen=True)
class Row:
    """A measurement and its comparison with others of its size. Values are None without a
    reference."""

    measured: Measured
    speedup: float | None  # median of the uncompressed allreduce / this median
    of_bound: float | None  # time of plain sockets for these bytes / this time
    expected: float | None  # bytes sent if the overhead is that of plain sockets

    @property
    def excess(self) -> float | None:
        return None if self.expected is None else self.measured.sent / self.expected - 1

    def as_dict(self) -> dict:
        derived = {"speedup": self.speedup, "of_bound": self.of_bound, "expected": self.expected}
        return {**asdict(self.measured), **derived, "excess": self.excess}


def compare(all_of_one_size: Sequence[Measured]) -> list[Row]:
    by_name = {measured.variant: measured for measured in all_of_one_size}
    reference, tcp = by_name.get("ringdist"), by_name.get(TCP)
    return [_compare(measured, reference, tcp) for measured in all_of_one_size]


def _compare(measured: Measured, reference: Measured | None, tcp: Measured | None) -> Row:
    speedup = reference and reference.times.median / measured.times.median
    of_bound = expected = None
    if tcp and tcp.payload:
        overhead = tcp.sent / tcp.payload
        if measured.payload is not None:
            expected = measured.payload * overhead
        least = (measured.sent if expected is None else expected) / tcp.sent * tcp.times.median
        of_bound = least / measured.times.median
    return Row(measured, speedup, of_bound, expected)


_LINE = "{:22}  {:>5}  {:>9}  {:>24}  {:>9}  {:>8}  {:>8}  {:>11}  {:>11}  {:>7}  {:>8}"


def header(about: dict) -> str:
    rate = "unshaped links" if about["rate"] == "none" else f"links of {about['rate']}"
    return (
        f"allreduce over {about['hosts']} hosts on {rate}, {about['per_host']} rank(s) each, "
        f"{about['dtype']}, TCP {about['congestion']}\n"
        f"torch {about['torch']}, {about['cores']} cores of {about['cpu']}\n"
        "time of one operation, back to back, of the slowest rank; sent: per host and operation, "
        "as its interface counted"
    )


def titles(size: int) -> str:
    words = ("variant", "times", "median", "quartiles", "minimum", "speed-up", "of bound")
    return f"\n{size_text(size)}\n" + _LINE.format(*words, "sent", "expected", "excess", "error")


def line(row: Row) -> str:
    measured, times = row.measured, row.measured.times
    return _LINE.format(
        measured.variant,
        measured.operations,
        duration(times.median),
        f"{duration(times.lower)} .. {duration(times.upper)}",
        duration(times.minimum),
        _or_dash(row.speedup, "{:.2f}x"),
        _or_dash(row.of_bound, "{:.2f}"),
        f"{measured.sent / 1e6:.3f} MB",
        _or_dash(row.expected and row.expected / 1e6, "{:.3f} MB"),
        _or_dash(row.excess, "{:+.1%}"),
        f"{measured.error:.1e}",
    )


def bound(row: Row) -> str:
    """Describes the speed of the plain sockets of this run. The row is theirs, with a payload."""
    payload, times = row.measured.payload, row.measured.times
    return (
        f"{TCP}: {8e3 * payload / times.median:.1f} Mb/s of payload sent and received by each host "
        f"at once; no uncompressed allreduce can take less than {duration(times.median)}; "
        f"headers add {row.measured.sent / payload - 1:.2%}"
    )


def save(path: Path, about: dict, rows: Sequence[Row]) -> None:
    text = json.dumps({**about, "rows": [row.as_dict() for row in rows]}, indent=2)
    path.write_text(text + "\n")


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
