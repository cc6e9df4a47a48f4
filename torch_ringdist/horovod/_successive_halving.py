"""Successive halving: finds the best of several settings from few noisy measurements."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Generic, TypeVar

_Setting = TypeVar("_Setting")


class SuccessiveHalving(Generic[_Setting]):
    """Measures all settings a few times, then the better ones more often, and so on.

    Each round keeps a third of the settings and doubles the number of measurements. Settings are
    compared by the median of all their samples. Source: Jamieson, Talwalkar, "Non-stochastic Best
    Arm Identification and Hyperparameter Optimization" (2016).
    """

    def __init__(self, settings: Sequence[_Setting], times: int = 3) -> None:
        """Begins with `times` measurements of each setting; at least one setting is needed."""
        self._samples: list[tuple[_Setting, list[float]]] = [(one, []) for one in settings]
        self._living = list(range(len(settings)))
        self._times = times
        self._turn = 0  # measurements done in this round

    @property
    def is_over(self) -> bool:
        return len(self._living) == 1

    @property
    def current(self) -> _Setting:
        """The setting to measure; at the end, the best one."""
        return self._samples[self._living[0 if self.is_over else self._turn // self._times]][0]

    def add(self, sample: float) -> None:
        """Adds a measurement of the current setting; less is better."""
        if self.is_over:
            return
        self._samples[self._living[self._turn // self._times]][1].append(sample)
        self._turn += 1
        if self._turn == self._times * len(self._living):
            self._living.sort(key=lambda i: statistics.median(self._samples[i][1]))
            del self._living[max(1, len(self._living) // 3) :]
            self._turn, self._times = 0, 2 * self._times
