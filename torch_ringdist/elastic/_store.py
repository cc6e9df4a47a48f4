"""The store of a job, which may stop answering: no request holds up training or a launcher."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from torch_ringdist import _native

if TYPE_CHECKING:
    from torch_ringdist._C import BoundedStore

LIMIT = 10.0  # seconds that a request takes at most
_PAUSE = 1.0  # seconds between two tries to write


def open_store(host: str, port: int, timeout: timedelta = timedelta(seconds=LIMIT)) -> BoundedStore:
    """Raises torch.distributed.DistNetworkError: no store answers there within `timeout`."""
    store: BoundedStore = _native.load().BoundedStore(host, port, timedelta(seconds=LIMIT))
    store.connect(timeout)
    return store


class Writer:
    """Writes to a store on a thread, as soon as the store answers. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: tuple[Callable[[], None], threading.Event] | None = None
        self._thread: threading.Thread | None = None
        self._ended = False

    def keep(self, write: Callable[[], None], final: bool = False) -> threading.Event:
        """Calls `write` until it raises nothing, and then sets the event. Only the last one that is
        given is called; after a final one, no other."""
        with self._lock:
            if self._ended:
                return threading.Event()
            self._ended = final
            self._kept = write, threading.Event()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()
            return self._kept[1]

    def keeps(self, write: Callable[[], None]) -> bool:
        """Whether no other one has been given since."""
        kept = self._kept
        return kept is not None and kept[0] is write

    def _run(self) -> None:
        while True:
            with self._lock:
                kept = self._kept
                if kept is None:
                    self._thread = None
                    return
            try:
                kept[0]()
            except Exception:  # the store is silent, or has what somebody else has written
                time.sleep(_PAUSE)
                continue
            kept[1].set()
            with self._lock:
                if self._kept is kept:
                    self._kept = None
