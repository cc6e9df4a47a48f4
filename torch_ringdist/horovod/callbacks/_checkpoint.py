"""Callback that saves the best model so far to a file."""

from __future__ import annotations

import contextlib
import math
import os
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from torch_ringdist._errors import ArgumentError
from torch_ringdist.horovod._objects import broadcast_object
from torch_ringdist.horovod._sets import ProcessSet, global_process_set, group_of
from torch_ringdist.horovod.callbacks._callback import Callback, Logs

_NAME = "BestModelCheckpoint"
# Names of metrics that mode="auto" maximizes.
_MORE_IS_BETTER = re.compile(r"accuracy|(^|[^a-z])(acc|auc|f1|fmeasure)($|[^a-z])")


class BestModelCheckpoint(Callback):
    """Saves the model at the end of an epoch if its metric has improved.

    The first rank of the set writes the file, and all ranks get the result. The previous file stays
    complete until it is replaced. The metric is that of the first rank. After a
    MetricAverageCallback it is the average.

    Args:
        monitor: the name of the metric in logs. An epoch without it is skipped, with a warning.
        verbose: 1 prints the name of a written file.
        save_weights_only: leave out optimizer and extra.
        mode: "min" or "max" for the better value. "auto" uses "max" for accuracies, acc, auc, f1
            and fmeasure.
        save_freq: must be "epoch".
        filepath: the file to write, required. It is a dict for torch.load() with "epoch",
            "monitor", "best", and the state_dict() of "model" and "optimizer" (if there is one).
        model, optimizer: needed without a CallbackList.
        extra: further contents by name. Objects with a state_dict() are stored by that.
        process_set: the ranks, which all make these calls.

    Attributes:
        improved: True if the last epoch was the best so far.
        best: the best metric; infinite before the first epoch.
        best_epoch: its epoch; None before the first.

    Raises:
        ValueError: an argument that is not accepted.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: str = "epoch",
        *,
        filepath: str | os.PathLike[str],
        model: nn.Module | None = None,
        optimizer: Optimizer | None = None,
        extra: Mapping[str, Any] | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        super().__init__(model, optimizer)
        if mode not in ("auto", "min", "max"):
            raise ArgumentError(f'{_NAME}: mode must be "auto", "min" or "max", got {mode!r}')
        if save_freq != "epoch":
            raise ArgumentError(
                f'{_NAME}: save_freq must be "epoch", when metrics are averaged; got {save_freq!r}'
            )
        if taken := sorted({*(extra or {})} & {"epoch", "monitor", "best", "model", "optimizer"}):
            raise ArgumentError(f"{_NAME}: extra must have other names than {', '.join(taken)}")
        if mode == "auto":
            mode = "max" if _MORE_IS_BETTER.search(monitor.lower()) else "min"
        self.monitor, self.verbose, self.mode = monitor, verbose, mode
        self.save_weights_only, self.extra = save_weights_only, dict(extra or {})
        self.filepath, self.process_set = Path(filepath), process_set
        self.improved = False
        self.best = math.inf if mode == "min" else -math.inf
        self.best_epoch: int | None = None

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Raises ValueError if there is no model."""
        self._needed("model", self.model)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Saves the model if it has improved. Raises RuntimeError on all ranks if the file cannot
        be written."""
        group = group_of(self.process_set, _NAME)
        problem = ""
        if group.rank == 0:
            try:
                self._look(epoch, logs or {})
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
        found = self.improved, self.best, self.best_epoch, problem
        found = broadcast_object(found, group.members[0], _NAME, self.process_set)
        self.improved, self.best, self.best_epoch, problem = found
        if problem:
            raise RuntimeError(
                f"{_NAME}: rank {group.members[0]} could not write {self.filepath}: {problem}"
            )

    # Compares the metric and writes the file, on the first rank.
    def _look(self, epoch: int, logs: Logs) -> None:
        self.improved = False
        if self.monitor not in logs:
            warnings.warn(
                f"{_NAME}: epoch {epoch} has no metric {self.monitor!r}, but {sorted(logs)}",
                stacklevel=3,
            )
            return
        value = float(logs[self.monitor])
        if not (value < self.best if self.mode == "min" else value > self.best):
            return
        before = self.best, self.best_epoch
        self.improved, self.best, self.best_epoch = True, value, epoch
        try:
            self._write()
        except BaseException:
            self.improved, (self.best, self.best_epoch) = False, before
            raise
        if self.verbose > 0:
            print(f"Epoch {epoch + 1}: {self.monitor} is {value:g}, best so far: {self.filepath}")

    # Writes the file atomically.
    def _write(self) -> None:
        content: dict[str, Any] = {
            "epoch": self.best_epoch,
            "monitor": self.monitor,
            "best": self.best,
            "model": self._needed("model", self.model).state_dict(),
        }
        if not self.save_weights_only:
            if self.optimizer is not None:
                content["optimizer"] = self.optimizer.state_dict()
            for name, one in self.extra.items():
                content[name] = one.state_dict() if hasattr(one, "state_dict") else one
        self.filepath.parent.mkdir(parents=True, exist_ok=True)
        draft = self.filepath.with_name(f".{self.filepath.name}.{os.getpid()}")
        try:
            with draft.open("wb") as file:
                torch.save(content, file)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.filepath)
        finally:
            with contextlib.suppress(FileNotFoundError):
                draft.unlink()

    def state_dict(self) -> dict[str, Any]:
        """Returns the best metric and its epoch."""
        return {"best": self.best, "best_epoch": self.best_epoch}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Loads a result of state_dict()."""
        self.best, self.best_epoch = state_dict["best"], state_dict["best_epoch"]
