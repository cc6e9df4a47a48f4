"""Scales an optimizer's learning rates for callbacks, and corrects its momentum after changes."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from torch_ringdist._errors import ArgumentError

# Key in parameter groups, and so in the optimizer's state, for the rate of the last step.
_STEPPED = "stepped_lr"


class Rates:
    """Scales the rates of one optimizer for all callbacks.

    Rates are scaled from the begin of a batch to the end of the optimizer's step, and in each
    further step of the batch. At other times, and in optimizer.state_dict(), they are the values
    set by torch's schedulers or a checkpoint, per parameter group.

    Attributes:
        used: the first group's rate in this or the last batch.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._factors: dict[int, float] = {}  # factors by callback, in a batch
        self._scaled: list[tuple[float, float]] = []  # own and scaled rate of each group
        self._changed: list[int] = []  # groups with a rate that was set while scaled
        self._corrects: bool | None = None  # None for no correction, True for all groups
        self._momenta: dict[int, Any] = {}  # original momenta during a corrected step
        self.used: float | None = None
        optimizer.register_step_pre_hook(lambda steps, *_: self._before_step(steps))
        optimizer.register_step_post_hook(lambda *_: self._after_step())
        optimizer.register_state_dict_pre_hook(lambda _: self._unscale())

    @staticmethod
    def of(optimizer: Optimizer) -> Rates:
        """Returns the Rates of the optimizer, created on the first call. hvd.DistributedOptimizer
        keeps it."""
        if not hasattr(optimizer, "_ringdist_rates"):
            optimizer._ringdist_rates = Rates(optimizer)  # type: ignore[attr-defined]
        return optimizer._ringdist_rates  # type: ignore[attr-defined]

    @property
    def groups(self) -> list[dict[str, Any]]:
        return self._optimizer.param_groups

    def set_own(self, rate: float | list[float]) -> None:
        """Sets the own rate of all groups, or of each."""
        rates = rate if isinstance(rate, list) else [rate] * len(self.groups)
        for group, one in zip(self.groups, rates, strict=True):
            _set(group, one)

    def begin(self, callback: object, factor: float | None) -> None:
        """Begins a batch in which `callback` scales by `factor`, or not if it is None."""
        self._unscale()  # the last batch may have been aborted, or another callback has begun
        self._changed.clear()
        if factor is None:
            self._factors.pop(id(callback), None)
        else:
            self._factors[id(callback)] = factor
        self._scale()
        self.used = float(self.groups[0]["lr"])

    def end(self, callback: object) -> None:
        """Ends a batch. Raises RuntimeError if a rate was set while it was scaled."""
        self._factors.pop(id(callback), None)
        self._unscale()
        if self._changed:
            changed, self._changed = self._changed[0], []
            raise RuntimeError(
                f"ringdist: horovod.callbacks: the learning rate of parameter group {changed} was "
                "set between on_batch_begin() and the optimizer's step, where a callback scales "
                "it: step a scheduler of torch after the optimizer, or after on_batch_end()"
            )

    def _scale(self) -> None:
        if self._scaled or not self._factors:
            return
        product = math.prod(self._factors.values())
        for group in self.groups:
            own = float(group["lr"])
            _set(group, own * product)
            self._scaled.append((own, float(group["lr"])))

    def _unscale(self) -> None:
        for i, (own, scaled) in enumerate(self._scaled):
            if float(self.groups[i]["lr"]) == scaled:
                _set(self.groups[i], own)
            else:
                self._changed.append(i)
        self._scaled.clear()

    def correct_momentum(self, all_groups: bool) -> None:
        """Corrects momentum from here on.

        In a step with a changed rate, momentum is multiplied by new rate / old rate. This applies
        to groups with `lr_in_momentum`, or to all groups with momentum. Source: Goyal et al.,
        "Accurate, Large Minibatch SGD" (2017), arXiv 1706.02677, section 3.
        """
        self._corrects = self._corrects or all_groups

    def _corrected(self) -> list[tuple[int, dict[str, Any]]]:
        if self._corrects is None:
            return []
        return [
            (i, group)
            for i, group in enumerate(self.groups)
            if group.get("momentum") and (self._corrects or group.get("lr_in_momentum"))
        ]

    def _before_step(self, optimizer: Optimizer) -> None:
        if optimizer.param_groups is not self.groups:
            raise ArgumentError(
                "horovod.callbacks: the optimizer that steps is another than that of the "
                "callbacks: give them the one that hvd.DistributedOptimizer has returned"
            )
        self._scale()
        self._restore_momenta()  # the last step may have been aborted
        for i, group in self._corrected():
            old, new = group.get(_STEPPED), float(group["lr"])
            if old and new != old:
                self._momenta[i] = group["momentum"]
                group["momentum"] = group["momentum"] * new / old

    def _after_step(self) -> None:
        self._restore_momenta()
        for _, group in self._corrected():
            group[_STEPPED] = float(group["lr"])
        self._unscale()

    def _restore_momenta(self) -> None:
        for i, momentum in self._momenta.items():
            self.groups[i]["momentum"] = momentum
        self._momenta.clear()


def _set(group: dict[str, Any], rate: float) -> None:
    # A tensor is changed in place, because compiled and captured steps read it.
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate
