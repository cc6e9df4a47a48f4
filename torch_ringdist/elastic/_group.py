"""Checks and fails the default group."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NoReturn

import torch
import torch.distributed as dist

from torch_ringdist._collectives import backend_of

_POLL = 0.05  # seconds between two checks while ranks end
_GOING = 30.0  # seconds for ranks to end after they must


def has_failed() -> bool:
    """Returns True if the default group has failed, because members were lost or newcomers wait. It
    does not depend on the type of an error."""
    if not dist.is_initialized():
        return False
    return backend_of(None, "elastic").has_failed


def give_up(rank: int, why: str) -> None:
    """Makes the group fail and continue without that rank."""
    backend_of(None, "elastic").give_up(rank, why)


def until_they_go(ranks: list[int]) -> NoReturn:
    """Waits until the given ranks end, then raises the error of the failed operation. Ranks that do
    not end in time are given up."""
    until = time.monotonic() + _GOING
    while True:
        work = dist.barrier(async_op=True)
        while ranks and not work.is_completed() and time.monotonic() < until:
            time.sleep(_POLL)
        for rank in ranks if time.monotonic() > until else ():
            give_up(rank, f"rank {rank} was to end, and has not for {_GOING:g} s")
        work.wait()


def await_devices(parameters: Iterable[torch.Tensor]) -> None:
    """Waits for the GPUs of these parameters, then checks the group.

    Work queued on a GPU continues when a group fails, with undefined memory contents. So a step
    counts only when it is complete on the GPU and the group has not failed.

    Raises:
        torch.distributed.DistBackendError: the group has failed.
    """
    devices = {one.device for one in parameters if one.is_cuda}
    for device in devices:
        torch.cuda.current_stream(device).synchronize()
    if devices and has_failed():
        raise dist.DistBackendError(
            "ringdist: State.commit: the group has failed while the step was on the GPU"
        )
