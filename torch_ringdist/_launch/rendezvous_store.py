"""The store through which ranks meet, hosted here or by the launcher of another host."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import torch.distributed as dist

from torch_ringdist import _address
from torch_ringdist._credentials import has_key
from torch_ringdist._launch.addresses import answers, is_here, wait_for
from torch_ringdist._served_store import open_or_serve, serve
from torch_ringdist.elastic._progress import FINISHED, TRAINING, Workers, beats_of, progress_of
from torch_ringdist.elastic._store import open_store

_SILENCE = 300.0  # seconds without a heartbeat after which a group counts as lost


class RendezvousStore:
    """Hosts or finds the store of a job, and counts the running workers in it.

    Attributes:
        address: "host:port" of a TCPStore, or "ringdist://host:port" of a store of ringdist's own,
            which it is with a key. For RINGDIST_RDZV.
        held_here: True if this process hosts the store, which then ends with it.
    """

    def __init__(self, wanted: tuple[str, int] | None, job: str) -> None:
        """Hosts the store, or waits for it. Raises OSError or torch.distributed.DistError if it is
        not available."""
        host, port = wanted or ("127.0.0.1", 0)
        here, is_own = wanted is None or is_here(host), has_key()
        self._job = job
        self._held: Any = None
        # Until the store answers, the group counts as alive.
        self._beats, self._beaten_at = -1, time.monotonic()
        self._here = 0  # running workers of this launcher
        if is_own:
            self._held, self.held_here = open_or_serve(host, port, serves=here)
        else:
            self.held_here = wanted is None or (here and not answers(host, port))
            if self.held_here:
                self._held = serve(host, port, wait_for_workers=False)
            else:
                wait_for(host, port)
        port = self._held.port if self.held_here else port
        self._store = open_store(host, port, is_own)
        self._workers = Workers(self._store, job)
        self.address = _address.join_store(host, port, is_own)

    @property
    def is_needed(self) -> bool:
        """True while workers of other launchers train, because new workers find them through this
        store."""
        with contextlib.suppress(dist.DistError):  # perhaps this process was stopped
            if not self.held_here or progress_of(self._store, self._job) != TRAINING:
                return False
            if (beats := beats_of(self._store, self._job)) != self._beats:
                self._beats, self._beaten_at = beats, time.monotonic()
        return time.monotonic() - self._beaten_at < _SILENCE

    @property
    def is_finished(self) -> bool:
        """True if the store has it that training has finished."""
        with contextlib.suppress(dist.DistError):
            return progress_of(self._store, self._job) == FINISHED
        return False

    def count(self, change: int) -> int:
        """Adds `change` to the number of running workers here and publishes it.

        If `change` is 0, returns the running workers of all launchers that were not killed. Returns
        -1 if the store does not answer; a later call publishes the number.
        """
        self._here += change
        with contextlib.suppress(dist.DistError):
            self._workers.tell(self._here)
            return self._here if change else self._workers.count()
        return -1
