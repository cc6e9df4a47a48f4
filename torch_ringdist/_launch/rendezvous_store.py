"""The store in which ranks meet: here, or at the launcher of another host."""

from __future__ import annotations

import contextlib
import time

import torch.distributed as dist

from torch_ringdist import _address
from torch_ringdist._launch.addresses import answers, is_here, wait_for
from torch_ringdist.elastic._progress import TRAINING, Workers, beats_of, progress_of
from torch_ringdist.elastic._store import open_store

_SILENCE = 300.0  # seconds without a sign of life, after which a group is taken for lost


class RendezvousStore:
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
        self._beats, self._beaten_at = -1, 0.0
        self._here = 0  # workers that run
        if self.held_here:
            self._held = dist.TCPStore(host, port, is_master=True, wait_for_workers=False)
            port = self._held.port
        else:
            wait_for(host, port)
        self._store = open_store(host, port)
        self._workers = Workers(self._store, job)
        self.address = _address.join(host, port)

    @property
    def is_needed(self) -> bool:
        """Workers of other launchers train, and others may come to them by the store here."""
        with contextlib.suppress(dist.DistError):  # this process was stopped, say
            if not self.held_here or progress_of(self._store, self._job) != TRAINING:
                return False
            if (beats := beats_of(self._store, self._job)) != self._beats:
                self._beats, self._beaten_at = beats, time.monotonic()
        return time.monotonic() - self._beaten_at < _SILENCE

    def count(self, change: int) -> int:
        """So many workers more run here; for 0, returns how many run, of all launchers that have
        not been killed. -1 where the store does not answer: a later call makes up for it."""
        self._here += change
        with contextlib.suppress(dist.DistError):
            self._workers.tell(self._here)
            return self._here if change else self._workers.count()
        return -1
