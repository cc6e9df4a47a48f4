"""Compares step times that were taken in turns."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import t as student


@dataclass(frozen=True)
class Ratio:
    """Geometric mean of ratios, with its 95 % interval."""

    mean: float
    low: float
    high: float

    def scaled(self, factor: float) -> Ratio:
        return Ratio(self.mean * factor, self.low * factor, self.high * factor)

    def __str__(self) -> str:
        return f"{self.mean:.2f} ({self.low:.2f} .. {self.high:.2f})"


def paired_ratio(ours: Sequence[float | None], other: Sequence[float | None]) -> Ratio:
    """Returns the ratio of values of the same rounds, by Student's t over logarithms. Pairs with
    None are left out.

    Raises ValueError for fewer than two pairs.
    """
    logs = [
        math.log(a / b) for a, b in zip(ours, other, strict=True) if a is not None and b is not None
    ]
    if len(logs) < 2:
        raise ValueError(f"pairs: got {len(logs)}, expected at least 2")
    mean = statistics.fmean(logs)
    half = student.ppf(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def median(values: Sequence[float | None]) -> float:
    """Returns the median of the values that are not None."""
    return statistics.median(value for value in values if value is not None)
