"""Calls several callbacks as one, and tracks the progress of training."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from torch import nn
from torch.optim import Optimizer

from torch_ringdist._errors import ArgumentError
from torch_ringdist.horovod.callbacks._broadcast import BroadcastGlobalVariablesCallback
from torch_ringdist.horovod.callbacks._callback import Callback, Logs

Item = TypeVar("Item")


class CallbackList(Callback):
    """Calls callbacks in their order.

    Args:
        callbacks: the callbacks.
        model, optimizer: values for callbacks without their own. The optimizer must be the one that
            steps, which is the result of hvd.DistributedOptimizer.
        steps_per_epoch: batches per epoch on this rank, len(loader), for callbacks without their
            own.
        initial_epoch: the first epoch.

    Attributes:
        epoch, batch: the next epoch and batch.

    Raises:
        ValueError: a number is not accepted, or an element is not a Callback.
    """

    def __init__(
        self,
        callbacks: Sequence[Callback],
        *,
        model: nn.Module | None = None,
        optimizer: Optimizer | None = None,
        steps_per_epoch: int | None = None,
        initial_epoch: int = 0,
    ) -> None:
        super().__init__(model, optimizer, steps_per_epoch)
        self.callbacks = list(callbacks)
        for one in self.callbacks:
            if not isinstance(one, Callback):
                raise ArgumentError(
                    f"CallbackList: callbacks must be torch_ringdist.horovod.callbacks.Callback, "
                    f"got {type(one).__name__}"
                )
            if isinstance(one, BroadcastGlobalVariablesCallback):
                one.progress = self
        if initial_epoch < 0:
            raise ArgumentError(f"CallbackList: initial_epoch must be >= 0, got {initial_epoch}")
        self.epoch, self.batch = initial_epoch, 0
        self._in_epoch = False
        self._done = 0  # batches of this epoch before the restart
        self.bind(model, optimizer, steps_per_epoch)

    def bind(
        self,
        model: nn.Module | None,
        optimizer: Optimizer | None,
        steps_per_epoch: int | None,
    ) -> None:
        """Sets missing values of all callbacks."""
        super().bind(model, optimizer, steps_per_epoch)
        for one in self.callbacks:
            one.bind(self.model, self.optimizer, self.steps_per_epoch)

    def epochs(self, count: int) -> Iterator[int]:
        """Yields the remaining epochs of `count`, and calls on_train_begin() and on_train_end()
        around them.

        If the loop has metrics, it calls on_epoch_end() itself.
        """
        self.on_train_begin()
        while self.epoch < count:
            epoch = self.epoch
            self.on_epoch_begin(epoch)
            yield epoch
            if self.epoch == epoch:
                self.on_epoch_end(epoch)
        self.on_train_end()

    def batches(self, loader: Iterable[Item]) -> Iterator[Item]:
        """Yields the batches of an epoch, and calls on_batch_begin() and on_batch_end() around
        each.

        Batches from before a restart are skipped, so the loader must return the same order again.
        """
        first, self._done = self._done, 0
        for batch, item in enumerate(itertools.islice(loader, first, None), first):
            self.on_batch_begin(batch)
            yield item
            self.on_batch_end(batch)

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._in_epoch = False
        for one in self.callbacks:
            one.on_train_begin(logs)

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        if epoch != self.epoch:
            self.epoch, self.batch, self._done = epoch, 0, 0
        self._in_epoch = True
        for one in self.callbacks:
            one.on_epoch_begin(epoch, logs)

    def on_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        if not self._in_epoch:  # the loop continues within an epoch
            self.on_epoch_begin(self.epoch)
        self.batch = batch + 1  # a checkpoint of the loop is written after the step
        for one in self.callbacks:
            one.on_batch_begin(batch, logs)

    def on_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        for one in self.callbacks:
            one.on_batch_end(batch, logs)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        # Set first, because a checkpoint that a callback writes must continue with the next epoch.
        self.epoch, self.batch, self._done = epoch + 1, 0, 0
        self._in_epoch = False
        logs = {} if logs is None else logs
        for one in self.callbacks:
            one.on_epoch_end(epoch, logs)

    def on_train_end(self, logs: Logs | None = None) -> None:
        for one in self.callbacks:
            one.on_train_end(logs)

    def state_dict(self) -> dict[str, Any]:
        """Returns epoch, batch, and the states of all callbacks."""
        states = [(type(one).__name__, one.state_dict()) for one in self.callbacks]
        return {"epoch": self.epoch, "batch": self.batch, "callbacks": states}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Loads a state. Raises ValueError if it belongs to other callbacks."""
        theirs = [name for name, _ in state_dict["callbacks"]]
        ours = [type(one).__name__ for one in self.callbacks]
        if theirs != ours:
            raise ArgumentError(
                f"CallbackList: the state is of the callbacks {theirs}, these are {ours}"
            )
        self.epoch, self.batch = state_dict["epoch"], state_dict["batch"]
        self._done, self._in_epoch = self.batch, False
        for one, (_, state) in zip(self.callbacks, state_dict["callbacks"], strict=True):
            one.load_state_dict(state)
