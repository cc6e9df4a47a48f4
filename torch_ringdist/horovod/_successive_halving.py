"""Successive halving: the best of some settings, by a few noisy measurements of each."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Generic, TypeVar

_Setting = TypeVar("_Setting")


class SuccessiveHalving(Generic[_Setting]):
    """All settings are measured a little, the better part of them longer, and so on.

    Jamieson, Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization"
    (2016); each round keeps a third, measured twice as often. The median of all samples of a
    setting counts.
    """

    def __init__(self, settings: Sequence[_Setting], times: int = 3) -> None:
        """`times`: measurements of each in the first round; at least one setting."""
        self._samples: list[tuple[_Setting, list[float]]] = [(one, []) for one in settings]
        self._living = list(range(len(settings)))
        self._times = times
        self._turn = 0  # of those that live, in this round

    @property
    def is_over(self) -> bool:
        return len(self._living) == 1

    @property
    def current(self) -> _Setting:
        """To be measured; once it is over, the best one."""
        return self._samples[self._living[0 if self.is_over else self._turn // self._times]][0]

    def add(self, sample: float) -> None:
        """Of the current one; less is better."""
        if self.is_over:
            return
        self._samples[self._living[self._turn // self._times]][1].append(sample)
        self._turn += 1
        if self._turn == self._times * len(self._living):
            self._living.sort(key=lambda i: statistics.median(self._samples[i][1]))
            del self._living[max(1, len(self._living) // 3) :]
            self._turn, self._times = 0, 2 * self._times
