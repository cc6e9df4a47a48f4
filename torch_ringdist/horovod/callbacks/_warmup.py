"""The learning rate of one rank grows to that of all."""

from __future__ import annotations

from collections.abc import Sequence

from torch.optim import Optimizer

from torch_ringdist._errors import ArgumentError
from torch_ringdist.horovod._sets import ProcessSet, global_process_set
from torch_ringdist.horovod.callbacks._callback import Logs
from torch_ringdist.horovod.callbacks._schedule import LearningRateScheduleCallback


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """In the first epochs the rate grows in a line, batch by batch, from own rate / size to the own
    rate, which the last of these batches has. Goyal et al. (2017), arXiv 1706.02677.

    Args:
        initial_lr, momentum_correction, steps_per_epoch, optimizer: as of
            LearningRateScheduleCallback.
        warmup_epochs: of these epochs; 0 does nothing.
        verbose: 1: one rank says when it has ended.
        process_set: the ranks whose number is the size.

    Raises:
        ValueError: as LearningRateScheduleCallback.
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
        # By the end of this batch: so the last one has the whole rate.
        epoch += 1 / self._needed("steps_per_epoch", self.steps_per_epoch)
        size = self.process_set.size()
        return min(1.0, (1 + epoch * (size - 1) / self.warmup_epochs) / size)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        ended = epoch < self.warmup_epochs <= epoch + 1
        if ended and self.verbose > 0 and self.process_set.rank() == 0 and self._rates:
            print(f"Epoch {epoch + 1}: warm-up has ended at learning rate {self._rates.used:g}")
