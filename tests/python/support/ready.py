"""Marks in the store by which a test waits for its ranks, instead of guessing a time."""

from __future__ import annotations

import time

import torch.distributed as dist

from support.pool import Pool, _store
from support.rank import Ranks, store_for
from support.store import wait_for, write


def mark_ready() -> None:
    """Marks this rank as ready, once in the life of its pool."""
    write(store_for("ready"), str(Ranks.rank), "yes")


def wait_until_ready(pool: Pool) -> None:
    """Waits until all ranks are ready, and a moment more. No rank of the pool hosts the store."""
    store = dist.PrefixStore(f"{pool.launch.prefix}/ready", _store())
    try:
        wait_for(store, *map(str, range(pool.size)), seconds=40)
    except AssertionError:
        pool.collect(1)  # raises the errors of ranks
        raise
    time.sleep(0.3)  # they begin with operations
