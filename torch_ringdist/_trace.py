"""Implements trace(), which records the operations of this process."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import torch.distributed as dist

from torch_ringdist import _native
from torch_ringdist._errors import ArgumentError


def _rank() -> int:
    if dist.is_initialized():
        return dist.get_rank()
    return int(os.environ.get("RANK", "0"))


@contextlib.contextmanager
def trace(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Records each operation of a ringdist group that ends on this rank inside the ``with`` block.

    A record has the times of the call and of the end, in a row per group. Each rank writes
    ``rank-N.json`` in `folder`, which is created if it is missing. All ranks that write to one
    folder must belong to one job. ``python -m torch_ringdist timeline merge FOLDER`` merges the
    files for ui.perfetto.dev. A killed process leaves the events recorded so far.

    Raises:
        ValueError: this process is recorded already.
        OSError, DistBackendError: the file cannot be written.
    """
    path = Path(folder).absolute() / f"rank-{_rank()}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    name = f"rank {_rank()} (pid {os.getpid()} on host {socket.gethostname()})"
    native = _native.load()
    if not native.start_trace(str(path), _rank(), name):
        raise ArgumentError("trace: this process is recorded already, by trace() or a timeline")
    try:
        yield path
    finally:
        native.stop_trace()
