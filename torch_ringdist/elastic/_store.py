"""The store of a job, which may stop answering: no request holds up training or a launcher."""

from __future__ import annotations

import atexit
import contextlib
import socket
import threading
import time
from collections.abc import Callable
from concurrent import futures
from datetime import timedelta
from typing import TypeVar

import torch.distributed as dist

from torch_ringdist import _address

_Answer = TypeVar("_Answer")
_Request = Callable[[dist.Store], _Answer]
LIMIT = 10.0  # seconds that a request takes at most
_PROBE = 2.0  # seconds to connect again
_PAUSE = 1.0  # seconds between two tries, and after a failure until anybody tries again


class BoundedStore:
    """A TCPStore, by clients of its own: each request runs on a thread, and ends within a limit.

    Where the store's host is cut off, a client waits until TCP gives up, a quarter of an hour. It
    is left alone then, and the next request opens another one. Any thread.
    """

    def __init__(self, host: str, port: int, timeout: timedelta) -> None:
        """Raises torch.distributed.DistError: no store answers there within `timeout`."""
        self._place = (host, port)
        self.address = _address.join(host, port)
        self._client: dist.TCPStore | None = self.open(timeout)
        self._silent_until = 0.0
        self._lock = threading.Lock()
        self._kept: tuple[_Request[None], threading.Event] | None = None
        self._writer: threading.Thread | None = None

    def open(self, timeout: timedelta) -> dist.TCPStore:
        """A client for another user. Raises torch.distributed.DistError."""
        place = self._place
        return dist.TCPStore(*place, is_master=False, wait_for_workers=False, timeout=timeout)

    def ask(self, request: _Request[_Answer]) -> _Answer:
        """Returns what the request does, which is given a client.

        Raises:
            torch.distributed.DistNetworkError: no answer within the limit, or a moment ago. The
                store may still do what it was asked for.
        """
        if time.monotonic() < self._silent_until:
            raise self._silent()
        client, answer = self._client, futures.Future[_Answer]()
        run = threading.Thread(target=self._run, args=(request, client, answer), daemon=True)
        run.start()
        try:
            return answer.result(LIMIT)
        except (dist.DistError, futures.TimeoutError) as error:
            if self._client is client:
                self._client = None
            self._silent_until = time.monotonic() + _PAUSE
            raise self._silent() from error

    def keep(self, request: _Request[None]) -> threading.Event:
        """Runs the request on a thread as soon as the store answers, and then sets the event. Only
        the last request is kept."""
        with self._lock:
            self._kept = request, threading.Event()
            if self._writer is None:
                self._writer = threading.Thread(target=self._write, daemon=True)
                self._writer.start()
                # A thread that comes back into an interpreter that has ended would abort it.
                atexit.register(self._writer.join, _PAUSE)
            return self._kept[1]

    def keeps(self, request: _Request[None]) -> bool:
        """Whether no other request has been kept since."""
        kept = self._kept
        return kept is not None and kept[0] is request

    def get(self, key: str) -> bytes:
        return self.ask(lambda store: store.get(key))

    def set(self, key: str, value: str) -> None:
        self.ask(lambda store: store.set(key, value))

    def add(self, key: str, amount: int) -> int:
        return self.ask(lambda store: store.add(key, amount))

    def check(self, keys: list[str]) -> bool:
        return self.ask(lambda store: store.check(keys))

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        return self.ask(lambda store: store.compare_set(key, expected, desired))

    def _run(
        self,
        request: _Request[_Answer],
        client: dist.TCPStore | None,
        answer: futures.Future[_Answer],
    ) -> None:
        try:
            if client is None:
                with contextlib.closing(socket.create_connection(self._place, _PROBE)):
                    pass  # where nobody listens, a client would try until its time is over
                client = self._client = self.open(timedelta(seconds=LIMIT))
            answer.set_result(request(client))
        except OSError as error:
            answer.set_exception(dist.DistNetworkError(str(error)))
        except BaseException as error:
            answer.set_exception(error)

    def _write(self) -> None:
        while True:
            with self._lock:
                kept = self._kept
                if kept is None:
                    self._writer = None
                    return
            try:
                self.ask(kept[0])
            except Exception:  # the store is silent, or somebody else writes to it
                time.sleep(_PAUSE)
                continue
            kept[1].set()
            with self._lock:
                if self._kept is kept:
                    self._kept = None

    def _silent(self) -> dist.DistNetworkError:
        return dist.DistNetworkError(
            f"ringdist: the store at {self.address} has failed, or has not answered for "
            f"{LIMIT:g} s: is its host still reached, and its launcher alive?"
        )
