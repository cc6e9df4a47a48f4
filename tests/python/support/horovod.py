"""Ranks of a pool that call operations by name (torch_ringdist.horovod)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch_ringdist.horovod as hvd
from support.rank import Ranks

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def begin(**named: object) -> None:
    """Calls init() with the environment that torchrun would set."""
    launch = Ranks.launch
    values = (str(Ranks.rank), str(launch.size), launch.store_address, str(launch.port))
    os.environ.update(zip(VARIABLES, values, strict=True))
    hvd.init(**named)


@contextlib.contextmanager
def initialized(**named: object) -> Iterator[None]:
    """Runs the body between begin() and shutdown()."""
    begin(**named)
    try:
        yield
        hvd.barrier()  # no rank leaves before all are done
    finally:
        hvd.shutdown()
