"""The store in which ranks meet: here, or at the launcher of another host."""

from __future__ import annotations

import contextlib
import socket
import time

import torch.distributed as dist

from torch_ringdist import _address
from torch_ringdist.elastic._entry import TRAINING, progress_of

_PATIENCE = 60.0  # seconds for the launcher that holds the store to come up
_PROBE = 1.0
_POLL = 0.5


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
        self._store: dist.TCPStore | None = None
        self._job = job
        if self.held_here:
            self._store = dist.TCPStore(host, port, is_master=True, wait_for_workers=False)
            port = self._store.port
        else:
            _wait_for(host, port)
        self.address = _address.join(host, port)

    @property
    def is_needed(self) -> bool:
        """Workers of other launchers train, and others may come to them by the store here."""
        return self._store is not None and progress_of(self._store, self._job) == TRAINING


def is_here(host: str) -> bool:
    """One of this machine's own addresses can be bound."""
    for family, kind, _, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
        with contextlib.suppress(OSError), socket.socket(family, kind) as one:
            one.bind(address)
            return True
    return False


def answers(host: str, port: int) -> bool:
    """Somebody listens there."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), _PROBE):
        return True
    return False


def _wait_for(host: str, port: int) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not answers(host, port):
        if time.monotonic() > deadline:
            raise ConnectionError(
                f"no launcher holds a store at {host}:{port} (waited {_PATIENCE:g} s): start one "
                f"on {host} with the same --rdzv"
            )
        time.sleep(_POLL)
