"""Callback that raises the learning rate from that of one rank to that of all."""

from __future__ import annotations

from collections.abc import Sequence

from torch.optim import Optimizer

from torch_ringdist._errors import ArgumentError
from torch_ringdist.horovod._sets import ProcessSet, global_process_set
from torch_ringdist.horovod.callbacks._callback import Logs
from torch_ringdist.horovod.callbacks._schedule import LearningRateScheduleCallback


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the rate linearly, batch by batch, in the first epochs.

    It starts at own rate / size, and the last of these batches has the own rate. Source: Goyal et
    al. (2017), arXiv 1706.02677.

    Args:
        initial_lr, momentum_correction, steps_per_epoch, optimizer: see
            LearningRateScheduleCallback.
        warmup_epochs: number of these epochs; 0 turns it off.
        verbose: 1 prints the end of the warm-up on one rank.
        process_set: the ranks; their number is the size.

    Raises:
        ValueError: see LearningRateScheduleCallback.
    """

    def __init__(
        self,
        initial_lr: float | Sequence[float] | None = None,
        warmup_epochs: float = 5,
        momentum_correction: bool | None = None,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
        *,
        optimizer: Optimizer | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        if not warmup_epochs >= 0:
            raise ArgumentError(
                f"LearningRateWarmupCallback: warmup_epochs must be >= 0, got {warmup_epochs}"
            )
        self.warmup_epochs = warmup_epochs
        self.verbose = verbose
        self.process_set = process_set
        super().__init__(
            initial_lr,
            self._grown,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
            optimizer=optimizer,
        )

    def _grown(self, epoch: float) -> float:
        # Value at the end of this batch, so the last batch has the whole rate.
        epoch += 1 / self._needed("steps_per_epoch", self.steps_per_epoch)
        size = self.process_set.size()
        return min(1.0, (1 + epoch * (size - 1) / self.warmup_epochs) / size)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        ended = epoch < self.warmup_epochs <= epoch + 1
        if ended and self.verbose > 0 and self.process_set.rank() == 0 and self._rates:
            print(f"Epoch {epoch + 1}: warm-up has ended at learning rate {self._rates.used:g}")
