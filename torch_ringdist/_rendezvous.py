"""Reports a rank that waits in torch's rendezvous, which comes before any group of ours.

torch itself is silent there for the group's timeout, 30 minutes by default.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlparse


def watch() -> None:
    """Put a timer around torch's rendezvous by env:// and tcp://, of groups that ask for ringdist.

    Others go to torch's own handlers as they are. A second call does nothing; nor does a torch
    that keeps its handlers elsewhere.
    """
    module = sys.modules.get("torch.distributed.rendezvous")
    handlers = getattr(module, "_rendezvous_handlers", {})
    for scheme in ("env", "tcp"):
        if scheme in handlers and not hasattr(handlers[scheme], "_watched_by_ringdist"):
            handlers[scheme] = _watched(handlers[scheme])


def _watched(original: Callable[..., Iterator[Any]]) -> Any:
    @functools.wraps(original)
    def handler(url: str, *args: Any, **named: Any) -> Iterator[Any]:
        iterator, timer = original(url, *args, **named), None
        with contextlib.suppress(Exception):  # a line is not worth a failure
            if _is_for_ringdist():
                timer = _timer(url)
        return iterator if timer is None else _timed(iterator, timer)

    handler._watched_by_ringdist = True  # type: ignore[attr-defined]
    return handler


def _is_for_ringdist() -> bool:
    """Whether the init_process_group that calls this has been given our backend."""
    frame = sys._getframe()
    while frame := frame.f_back:  # type: ignore[assignment]
        if frame.f_code.co_name == "init_process_group":
            return "ringdist" in str(frame.f_locals.get("backend")).lower()
    return False


def _timer(url: str) -> threading.Timer | None:
    seconds = float(os.environ.get("RINGDIST_WARN_AFTER") or 30)
    if seconds <= 0 or os.environ.get("RINGDIST_LOG_LEVEL") == "error":
        return None
    parts = urlparse(url)
    given = {name: values[0] for name, values in parse_qs(parts.query).items()}
    rank = int(given.get("rank") or os.environ["RANK"])
    size = int(given.get("world_size") or os.environ["WORLD_SIZE"])
    host, port = parts.hostname, parts.port
    if parts.scheme == "env":
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    timer = threading.Timer(seconds, _report, (seconds, rank, size, host, port))
    timer.daemon = True
    return timer


def _timed(iterator: Iterator[Any], timer: threading.Timer) -> Iterator[Any]:
    with contextlib.suppress(RuntimeError):  # there is no further thread
        timer.start()
    try:
        found = next(iterator)
    finally:
        timer.cancel()
    yield found
    yield from iterator  # torch's own word on a second call


def _report(seconds: float, rank: int, size: int, host: str, port: int) -> None:
    # torchrun may hold the store for all of its ranks.
    if rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        missing = max(1, size - connected(port))
        awaited = f"{missing} of {size} ranks, which have not connected"
    else:
        awaited = "a store that does not answer; rank 0, or its torchrun, opens it"
    line = f"[ringdist {os.getpid()}] warn: rank {rank} waits at {host}:{port} for {awaited}"
    with contextlib.suppress(OSError):
        os.write(2, f"{line} (init_process_group, {seconds:g} s)\n".encode())


def connected(port: int) -> int:
    """How many connections to a port of this process' network are open, its own among them."""
    count = 0
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(f"/proc/self/net/{table}") as file:
            for row in map(str.split, file):
                count += row[1].endswith(f":{port:04X}") and row[3] == "01"  # ESTABLISHED
    return count
