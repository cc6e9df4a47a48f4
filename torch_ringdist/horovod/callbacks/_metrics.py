"""Callback that makes metrics equal on all ranks."""

from __future__ import annotations

from numbers import Real
from typing import Any

import torch
from torch import Tensor

from torch_ringdist._errors import ArgumentError
from torch_ringdist.horovod._objects import allgather_object
from torch_ringdist.horovod._ops import allreduce_
from torch_ringdist.horovod._reductions import Average
from torch_ringdist.horovod._sets import ProcessSet, global_process_set, group_of
from torch_ringdist.horovod.callbacks._callback import Callback, Logs

_NAME = "MetricAverageCallback"


class MetricAverageCallback(Callback):
    """Replaces each metric by its average over the ranks, a float, at the end of an epoch.

    Callbacks that use the average must follow this one.

    Args:
        process_set: the ranks.
    """

    def __init__(self, *, process_set: ProcessSet = global_process_set) -> None:
        super().__init__()
        self.process_set = process_set

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Averages the metrics in `logs` in place. All ranks call it, even without metrics.

        `logs` has numbers or tensors of one element, with the same names on all ranks.

        Raises:
            ValueError: a value is not a number, and nothing was sent. Also, on all ranks, if names
                differ.
        """
        logs = {} if logs is None else logs
        values = {name: _number(name, logs[name]) for name in sorted(logs)}
        self._agree(list(values))
        if values:
            averages = torch.tensor(list(values.values()), dtype=torch.float64, device="cpu")
            allreduce_(averages, op=Average, name=_NAME, process_set=self.process_set)
            logs.update(zip(values, averages.tolist(), strict=True))

    # Checks that names are equal on all ranks.
    def _agree(self, names: list[str]) -> None:
        # Checked each time. If only ranks with a change checked, they would wait for different
        # operations.
        group = group_of(self.process_set, _NAME)
        everyone = allgather_object(names, f"{_NAME}.names", self.process_set)
        for rank, theirs in zip(group.members, everyone, strict=True):
            if theirs != names:
                raise ArgumentError(
                    f"{_NAME}: rank {group.members[group.rank]} has the metrics {names}, rank "
                    f"{rank} has {theirs}: all must have the same"
                )


# Returns the metric as a float. Raises ValueError if it is not a number.
def _number(name: str, value: Any) -> float:
    if isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex():
        return float(value.detach())
    if isinstance(value, Real):
        return float(value)
    given = f"a tensor of shape {list(value.shape)}" if isinstance(value, Tensor) else repr(value)
    raise ArgumentError(
        f"{_NAME}: the metric {name!r} must be a number or a tensor of one element, got {given}"
    )
