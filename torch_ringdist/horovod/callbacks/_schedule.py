"""Callback that sets the learning rate as a function of epochs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torch import nn
from torch.optim import Optimizer

from torch_ringdist._errors import ArgumentError
from torch_ringdist.horovod.callbacks._callback import Callback, Logs
from torch_ringdist.horovod.callbacks._rates import Rates


class LearningRateScheduleCallback(Callback):
    """Multiplies the own rate by multiplier(epoch), from start_epoch until before end_epoch.

    Each parameter group has its own rate, which the optimizer was created with or a scheduler of
    torch sets. The entry "lr" of a group is the product from on_batch_begin() to the end of the
    optimizer's step. This also holds in further steps of that batch. At other times, and in a
    checkpoint, it is the own rate. The factors of several callbacks are multiplied. At the end of
    an epoch, logs["lr"] is the first group's rate in the last batch.

    Args:
        initial_lr: own rate of all groups, or one for each. It is set when the optimizer is bound,
            and a state loaded later overrides it. None keeps the rates.
        multiplier: a function of the epoch. Or a number, which then applies once per epoch, as
            multiplier ** (epoch - start_epoch).
        start_epoch, end_epoch: range of epochs; None means no end.
        staircase: use whole epochs; else epoch + batch / steps_per_epoch.
        momentum_correction: in a step with a changed rate, multiply momentum by new rate / old
            rate. None does so for optimizers that keep the rate in their velocity (a parameter
            group has `lr_in_momentum`). Optimizers of torch.optim do not (v = m v + g; p -= rate
            v), so nothing has to be corrected. True does so for all groups with momentum, as
            Horovod does for Keras.
        steps_per_epoch: calls of on_batch_begin() in an epoch; needed without staircase.
        optimizer: needed without a CallbackList.

    Raises:
        ValueError: an argument is not accepted. Later calls raise it if optimizer or
            steps_per_epoch are missing, or multiplier() is not finite or below 0.
    """

    def __init__(
        self,
        initial_lr: float | Sequence[float] | None = None,
        multiplier: float | Callable[[float], float] = 1.0,
        start_epoch: int = 0,
        end_epoch: float | None = None,
        staircase: bool = True,
        momentum_correction: bool | None = None,
        steps_per_epoch: int | None = None,
        *,
        optimizer: Optimizer | None = None,
    ) -> None:
        super().__init__(None, None, steps_per_epoch)
        self.initial_lr = initial_lr
        self.multiplier = multiplier
        self.start_epoch, self.end_epoch = start_epoch, end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.epoch = start_epoch
        self._rates: Rates | None = None
        self.bind(None, optimizer, None)

    def bind(
        self,
        model: nn.Module | None,
        optimizer: Optimizer | None,
        steps_per_epoch: int | None,
    ) -> None:
        """Binds the optimizer. Raises ValueError if initial_lr is not a rate or has the wrong
        length."""
        super().bind(model, optimizer, steps_per_epoch)
        if self.optimizer is None or self._rates is not None:
            return
        rates = Rates.of(self.optimizer)
        if self.initial_lr is not None:
            rates.set_own(self._checked_lr(self.initial_lr, len(rates.groups)))
        if self.momentum_correction is not False:
            rates.correct_momentum(all_groups=self.momentum_correction is True)
        self._rates = rates

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Raises ValueError if optimizer or steps_per_epoch are missing."""
        self._needed("optimizer", self.optimizer)
        if not self.staircase:
            self._needed("steps_per_epoch", self.steps_per_epoch)

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self.epoch = epoch

    def on_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        rates = self._needed("optimizer", self._rates)
        rates.begin(self, self._factor(batch) if self._is_active() else None)

    def on_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Raises RuntimeError if the rate was set within this batch."""
        self._needed("optimizer", self._rates).end(self)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if logs is not None and self._rates is not None and self._rates.used is not None:
            logs["lr"] = self._rates.used

    def _is_active(self) -> bool:
        return self.start_epoch <= self.epoch and (
            self.end_epoch is None or self.epoch < self.end_epoch
        )

    # Returns the multiplier for a batch. Raises ValueError if it is not finite or below 0.
    def _factor(self, batch: int) -> float:
        epoch: float = self.epoch
        if not self.staircase:
            epoch += batch / self._needed("steps_per_epoch", self.steps_per_epoch)
        factor = float(self._multiplied(epoch))
        if not math.isfinite(factor) or factor < 0:
            raise ArgumentError(
                f"{type(self).__name__}: multiplier must be finite and 0 or more, got {factor} in "
                f"epoch {epoch}"
            )
        return factor

    def _multiplied(self, epoch: float) -> float:
        if callable(self.multiplier):
            return self.multiplier(epoch)
        return self.multiplier ** (epoch - self.start_epoch)

    def _checked_lr(self, given: float | Sequence[float], groups: int) -> float | list[float]:
        rates = list(given) if isinstance(given, Sequence) else [given]
        if not all(math.isfinite(rate) and rate >= 0 for rate in rates) or (
            isinstance(given, Sequence) and len(rates) != groups
        ):
            raise ArgumentError(
                f"{type(self).__name__}: initial_lr must be a rate of 0 or more, or one for each "
                f"of the optimizer's {groups} parameter groups, got {given!r}"
            )
        return rates if isinstance(given, Sequence) else given
