"""The store in which ranks meet: here, or at the launcher of another host."""

from __future__ import annotations

import contextlib

import torch.distributed as dist

from torch_ringdist import _address
from torch_ringdist._launch.reach import answers, is_here, wait_for
from torch_ringdist.elastic._entry import TRAINING, progress_of, workers_of


class Meeting:
    """
    Attributes:
        address: "host:port", for RINGDIST_RDZV.
        held_here: by this process; it ends with it.
    """

    def __init__(self, wanted: tuple[str, int] | None, job: str) -> None:
        """Raises OSError or torch.distributed.DistError where there is none."""
        host, port = wanted or ("127.0.0.1", 0)
        self.held_here = wanted is None or (is_here(host) and not answers(host, port))
        self._job = job
        if self.held_here:
            self._store = dist.TCPStore(host, port, is_master=True, wait_for_workers=False)
            port = self._store.port
        else:
            wait_for(host, port)
            self._store = dist.TCPStore(host, port, is_master=False, wait_for_workers=False)
        self.address = _address.join(host, port)

    @property
    def is_needed(self) -> bool:
        """Workers of other launchers train, and others may come to them by the store here."""
        return self.held_here and progress_of(self._store, self._job) == TRAINING

    def count(self, change: int) -> int:
        """So many workers more run here; how many run, of all launchers that have not been killed.
        -1 where the store is lost."""
        with contextlib.suppress(RuntimeError):
            return workers_of(self._store, self._job, change)
        return -1
