"""Access to the store of a job without blocking training or a launcher if it stops answering."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

import torch.distributed as dist

from torch_ringdist import _native
from torch_ringdist._credentials import tls_files

if TYPE_CHECKING:
    from torch_ringdist._C import BoundedStore

LIMIT = 10.0  # time limit of a request, in seconds
_OPENING = 60.0  # seconds to connect; each name that DNS does not resolve may take ten
_PAUSE = 1.0  # seconds between two attempts to write


def open_store(
    host: str,
    port: int,
    is_own: bool = False,
    timeout: timedelta = timedelta(seconds=_OPENING),
) -> BoundedStore:
    """Opens a client of a store of ringdist's own, or of a TCPStore. If this process has
    credentials, the connections to the former are encrypted, and values in the latter are sealed.

    Raises:
        torch.distributed.DistNetworkError: no store answers there within `timeout`.
        torch.distributed.DistBackendError: a store of ringdist's own does not have the key.
        ArgumentError: the key or certificate is bad.
    """
    limit = timedelta(seconds=LIMIT)
    store: BoundedStore = _native.load().BoundedStore(host, port, limit, tls_files(), is_own)
    store.connect(timeout)
    return store


# Both functions raise torch.distributed.DistNetworkError if the store does not answer.


def text_of(store: BoundedStore, key: str) -> str:
    """Returns the value of a key; "" if there is none, or bytes of something else that are no
    UTF-8."""
    with contextlib.suppress(UnicodeDecodeError):
        return store.find(key) or ""
    return ""


def exchange(store: BoundedStore, key: str, expected: str, wanted: str) -> str:
    """Compare-and-set; returns the value afterwards. "" is expected for a key without a value.

    Raises:
        torch.distributed.DistBackendError: the value is no UTF-8.
    """
    try:
        return store.compare_set(key, expected, wanted)
    except UnicodeDecodeError as error:
        raise dist.DistBackendError(
            f"ringdist: something else writes to {key!r} in the store: the value is no text"
        ) from error


class Writer:
    """Writes to a store in a thread, as soon as the store answers. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: tuple[Callable[[], None], threading.Event] | None = None
        self._thread: threading.Thread | None = None
        self._ended = False

    def keep(self, write: Callable[[], None], final: bool = False) -> threading.Event:
        """Calls `write` until it does not raise, then sets the returned event.

        A later write replaces an earlier one that has not succeeded. After a final one, no other is
        accepted.
        """
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
        """Returns True if no other write has replaced this one."""
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
            except Exception:  # the store is silent, or has unexpected data
                time.sleep(_PAUSE)
                continue
            kept[1].set()
            with self._lock:
                if self._kept is kept:
                    self._kept = None
