"""What all callbacks are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from torch import nn
from torch.optim import Optimizer

from torch_ringdist._errors import ArgumentError

Logs = dict[str, Any]
Thing = TypeVar("Thing")


class Callback:
    """Does nothing: others, and a user's own, override what they need.

    Attributes:
        model, optimizer, steps_per_epoch: as given, or by the CallbackList that this is in.
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
        """Take what it was not given when it was made."""
        self.model = model if self.model is None else self.model
        self.optimizer = optimizer if self.optimizer is None else self.optimizer
        self.steps_per_epoch = self.steps_per_epoch or steps_per_epoch

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Before the first epoch, or the first after a resume."""

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Epochs count from 0."""

    def on_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """Batches count from 0 in each epoch."""

    def on_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """After the optimizer's step, if there is one in this batch."""

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """logs: metrics by name; a callback may change them, for those after it."""

    def on_train_end(self, logs: Logs | None = None) -> None:
        """After the last epoch."""

    def state_dict(self) -> dict[str, Any]:
        """What load_state_dict() needs to go on after a restart."""
        return {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """What state_dict() returned."""

    def _needed(self, what: str, value: Thing | None) -> Thing:
        """Raises: ValueError, nobody has given it."""
        if value is None:
            raise ArgumentError(
                f"{type(self).__name__}: it needs {what}: give it {what}=, or the CallbackList "
                "that it is in"
            )
        return value
