"""Base class of all callbacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from torch import nn
from torch.optim import Optimizer

from torch_ringdist._errors import ArgumentError

Logs = dict[str, Any]
Thing = TypeVar("Thing")


class Callback:
    """Base class of callbacks that does nothing. Subclasses override the functions that they need.

    Attributes:
        model, optimizer, steps_per_epoch: arguments, or values of the CallbackList with this
            callback.
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        optimizer: Optimizer | None = None,
        steps_per_epoch: int | None = None,
    ) -> None:
        if steps_per_epoch is not None and steps_per_epoch < 1:
            raise ArgumentError(
                f"{type(self).__name__}: steps_per_epoch must be 1 or more, got {steps_per_epoch}"
            )
        self.model, self.optimizer = model, optimizer
        self.steps_per_epoch = steps_per_epoch

    def bind(
        self,
        model: nn.Module | None,
        optimizer: Optimizer | None,
        steps_per_epoch: int | None,
    ) -> None:
        """Sets values that were not given to the constructor."""
        self.model = model if self.model is None else self.model
        self.optimizer = optimizer if self.optimizer is None else self.optimizer
        self.steps_per_epoch = self.steps_per_epoch or steps_per_epoch

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Called before the first epoch, or the first epoch after a restart."""

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Called before an epoch. Epochs count from 0."""

    def on_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """Called before a batch. Batches count from 0 in each epoch."""

    def on_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Called after the optimizer's step, if this batch has one."""

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Called after an epoch. `logs` has metrics by name. A callback may change them for later
        callbacks."""

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Called after the last epoch."""

    def state_dict(self) -> dict[str, Any]:
        """Returns the state to load after a restart."""
        return {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Loads a result of state_dict()."""

    def _needed(self, what: str, value: Thing | None) -> Thing:
        """Returns `value`. Raises ValueError if it is None."""
        if value is None:
            raise ArgumentError(
                f"{type(self).__name__}: it needs {what}: give it {what}=, or the CallbackList "
                "that it is in"
            )
        return value
