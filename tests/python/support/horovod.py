"""Ranks of a pool that call each other by name (torch_ringdist.horovod)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch_ringdist.horovod as hvd
from support.rank import Ranks

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def begin(**named: object) -> None:
    """init(), as torchrun would have this rank do it."""
    launch = Ranks.launch
    values = (str(Ranks.rank), str(launch.size), launch.store_address, str(launch.port))
    os.environ.update(zip(VARIABLES, values, strict=True))
    hvd.init(**named)


@contextlib.contextmanager
def initialized(**named: object) -> Iterator[None]:
    """Between begin() and shutdown()."""
    begin(**named)
    try:
        yield
        hvd.barrier()  # nobody leaves before all are done
    finally:
        hvd.shutdown()
