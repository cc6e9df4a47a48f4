"""Whether the default group is of use."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist

from torch_ringdist._collectives import backend_of


def has_failed() -> bool:
    """Members were lost, or newcomers wait; whatever the error that told of it."""
    if not dist.is_initialized():
        return False
    return backend_of(None, "elastic").has_failed


def give_up(rank: int, why: str) -> None:
    """The group fails, and goes on without that rank."""
    backend_of(None, "elastic").give_up(rank, why)


def await_devices(parameters: Iterable[torch.Tensor]) -> None:
    """What is queued on their GPUs goes on when a group fails, with whatever is in memory then: so
    a step counts when it is done there, and the group is well.

    Raises:
        torch.distributed.DistBackendError: it is not.
    """
    devices = {one.device for one in parameters if one.is_cuda}
    for device in devices:
        torch.cuda.current_stream(device).synchronize()
    if devices and has_failed():
        raise dist.DistBackendError(
            "ringdist: State.commit: the group has failed while the step was on the GPU"
        )
