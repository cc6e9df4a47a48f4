"""Combines callbacks of this package into one callback of Lightning."""

from __future__ import annotations

import functools
import importlib
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from torch_ringdist._errors import ArgumentError
from torch_ringdist.horovod.callbacks._callback import Callback
from torch_ringdist.horovod.callbacks._list import CallbackList

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")


class _Hooks:
    """Hooks that are combined with Lightning's Callback class. Each forwards to the
    CallbackList."""

    def __init__(self, callbacks: CallbackList, optimizer: int) -> None:
        self.callbacks = callbacks
        self._which = optimizer

    @property
    def state_key(self) -> str:
        names = [type(one).__name__ for one in self.callbacks.callbacks]
        return f"torch_ringdist.horovod.callbacks.{'.'.join(names)}"

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        # Runs before Lightning loads the optimizer's state, which overrides initial_lr.
        if trainer.optimizers and not self._which < len(trainer.optimizers):
            raise ArgumentError(
                f"lightning: optimizer must be below {len(trainer.optimizers)}, the number of "
                f"optimizers of {type(pl_module).__name__}, got {self._which}"
            )
        optimizer = trainer.optimizers[self._which] if trainer.optimizers else None
        self.callbacks.bind(pl_module, optimizer, None)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        steps = trainer.num_training_batches
        self.callbacks.bind(None, None, int(steps) if math.isfinite(steps) else None)
        self.callbacks.epoch = trainer.current_epoch
        self.callbacks.on_train_begin()

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self.callbacks.on_epoch_begin(trainer.current_epoch)

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        self.callbacks.on_batch_begin(batch_idx)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.callbacks.on_batch_end(batch_idx)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        before = {name: float(value) for name, value in trainer.callback_metrics.items()}
        logs = dict(before)
        self.callbacks.on_epoch_end(trainer.current_epoch, logs)
        changed = {name: value for name, value in logs.items() if before.get(name) != value}
        if changed:
            pl_module.log_dict(changed)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.callbacks.on_train_end()

    def state_dict(self) -> dict[str, Any]:
        return self.callbacks.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.callbacks.load_state_dict(state_dict)


def lightning(callbacks: Callback | Sequence[Callback], *, optimizer: int = 0) -> Any:
    """Returns one callback for Trainer(callbacks=[...]) of Lightning.

    A callback without its own model, optimizer or steps per epoch uses those of the trainer.
    Metrics are trainer.callback_metrics at the end of a training epoch. Metrics that a callback
    changes are logged again for later readers.

    Args:
        callbacks: callbacks of this package.
        optimizer: index of the module's optimizer.

    Returns:
        A lightning.pytorch.Callback, or one of pytorch_lightning.

    Raises:
        ImportError: Lightning is not installed.
        ValueError: see CallbackList.
    """
    if not isinstance(callbacks, CallbackList):
        several = [callbacks] if isinstance(callbacks, Callback) else callbacks
        callbacks = CallbackList(several)
    if not isinstance(optimizer, int) or optimizer < 0:
        raise ArgumentError(f"lightning: optimizer must be a number from 0 on, got {optimizer!r}")
    return _class_over(_base())(callbacks, optimizer)


# Returns a class with the hooks that derives from Lightning's Callback.
@functools.cache
def _class_over(base: type) -> Any:
    return type("LightningCallback", (_Hooks, base), {"__doc__": _Hooks.__doc__})


def _base() -> type:
    """Returns Lightning's Callback, preferably of the package that the script has imported."""
    for package in sorted(_PACKAGES, key=lambda one: one not in sys.modules):
        try:
            return importlib.import_module(package).Callback
        except ModuleNotFoundError as error:
            if not package.startswith(str(error.name)):
                raise
    raise ImportError(
        "torch_ringdist.horovod.callbacks.lightning() needs Lightning: pip install lightning"
    )
