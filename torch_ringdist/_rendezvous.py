"""Reports a rank that waits in torch's rendezvous, before a ringdist group exists.

torch itself prints nothing there for the timeout of the group, which is 30 minutes by default.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlencode, urlparse

# Variable with the store that ranks use instead of that at MASTER_ADDR and MASTER_PORT, as
# "ringdist://HOST:PORT?prefix=NAME&master=MASTER_ADDR:MASTER_PORT". The launchers of `torchrun
# --rdzv-backend=ringdist` set it, and with a key those of torch-ringdist. With another MASTER_ADDR
# or MASTER_PORT, a process belongs to a job that a rank has started.
STORE_OF_RANKS = "TORCHRUN_RINGDIST_STORE"


def watch() -> None:
    """Adds ringdist:// to torch's rendezvous. For groups of the backend ringdist it also adds a
    timer to all schemes, and lets env:// use STORE_OF_RANKS. With a key, env:// and tcp:// have
    a store of ringdist's own in place of a TCPStore.

    Other groups use torch's own handlers unchanged. A second call does nothing, and neither does a
    call with a torch that stores its handlers elsewhere.
    """
    module = sys.modules.get("torch.distributed.rendezvous")
    handlers = getattr(module, "_rendezvous_handlers", {})
    if handlers:
        handlers.setdefault("ringdist", _watched(_own))
    for scheme in ("env", "tcp"):
        if scheme in handlers and not hasattr(handlers[scheme], "_watched_by_ringdist"):
            handlers[scheme] = _watched(handlers[scheme])


# Rendezvous by ringdist://; see _served_store.rendezvous(), which takes long to import.
def _own(url: str, **named: Any) -> Iterator[Any]:
    from torch_ringdist import _served_store

    return _served_store.rendezvous(url, **named)


# Returns a handler that runs `original` under a timer.
def _watched(original: Callable[..., Iterator[Any]]) -> Any:
    @functools.wraps(original)
    def handler(url: str, *args: Any, **named: Any) -> Iterator[Any]:
        from torch_ringdist._credentials import has_key

        timer, store = None, ""
        is_ours = _is_for_ringdist()
        if is_ours and url.startswith("env:") and (store := store_of_ranks()):
            from torch_ringdist import _served_store

            iterator = _served_store.of_ranks(store, url, *args, **named)
        elif is_ours and not url.startswith("ringdist:") and has_key():
            from torch_ringdist import _served_store

            iterator = _served_store.with_key(url, *args, **named)
        else:
            iterator = original(url, *args, **named)
        with contextlib.suppress(Exception):  # the report must never cause a failure
            if is_ours:
                timer = _timer(url, store)
        return iterator if timer is None else _timed(iterator, timer)

    handler._watched_by_ringdist = True  # type: ignore[attr-defined]
    return handler


def address_of_ranks(host: str, port: int, prefix: str, master: str) -> str:
    """Returns the value of STORE_OF_RANKS for the store at (host, port), which ranks inherit."""
    from torch_ringdist import _address  # only launchers need it

    place = _address.join_store(host, port, is_own=True)
    return f"{place}?{urlencode({'prefix': prefix, 'master': master})}"


def store_of_ranks() -> str:
    """Returns STORE_OF_RANKS, or "" if this process is no rank of the launchers that set it."""
    address = os.environ.get(STORE_OF_RANKS, "")
    master = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    return address if query(address).get("master") == master else ""


def query(url: str) -> dict[str, str]:
    """Returns the parameters after the "?" of a URL."""
    return {name: values[0] for name, values in parse_qs(urlparse(url).query).items()}


def _is_for_ringdist() -> bool:
    """Returns True if the calling init_process_group was given the backend ringdist."""
    frame = sys._getframe()
    while frame := frame.f_back:  # type: ignore[assignment]
        if frame.f_code.co_name == "init_process_group":
            return "ringdist" in str(frame.f_locals.get("backend")).lower()
    return False


# Returns a timer that reports this rank after RINGDIST_WARN_AFTER seconds; None if that is off.
# `store` is STORE_OF_RANKS if that is used.
def _timer(url: str, store: str) -> threading.Timer | None:
    seconds = float(os.environ.get("RINGDIST_WARN_AFTER") or 30)
    if seconds <= 0 or os.environ.get("RINGDIST_LOG_LEVEL") == "error":
        return None
    parts = urlparse(url)
    given = query(url)
    rank = int(given.get("rank") or os.environ["RANK"])
    size = int(given.get("world_size") or os.environ["WORLD_SIZE"])
    there = urlparse(store) if store else parts
    host, port = there.hostname, there.port
    of_launcher = bool(store) or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if parts.scheme == "env" and not store:
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    timer = threading.Timer(seconds, _report, (seconds, rank, size, host, port, of_launcher))
    timer.daemon = True
    return timer


def _timed(iterator: Iterator[Any], timer: threading.Timer) -> Iterator[Any]:
    with contextlib.suppress(RuntimeError):  # no thread could be started
        timer.start()
    try:
        found = next(iterator)
    finally:
        timer.cancel()
    yield found
    yield from iterator  # lets torch raise its own error on a second call


# Prints the warning on stderr. Rank 0 also counts the missing ranks, if it has the store.
def _report(seconds: float, rank: int, size: int, host: str, port: int, of_launcher: bool) -> None:
    if rank == 0 and not of_launcher:
        missing = max(1, size - connected(port))
        awaited = f"{missing} of {size} ranks, which have not connected"
    else:
        awaited = "a store that does not answer; rank 0, or its launcher, opens it"
        awaited += ", and needs the same key or authority as this process, or none"
    text = f"rank {rank} waits at {host}:{port} for {awaited} (init_process_group, {seconds:g} s)"
    with contextlib.suppress(OSError):
        os.write(2, _log_line(text).encode())


# Returns a warning in the form of csrc/base/log.h.
def _log_line(text: str) -> str:
    import json
    import socket
    from datetime import datetime, timezone

    host, pid = socket.gethostname(), os.getpid()
    if os.environ.get("RINGDIST_LOG_FORMAT") != "json":
        return f"[ringdist {host}:{pid}] warn: {text}\n"
    time = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = {"time": time, "host": host, "pid": pid, "level": "warn", "text": text}
    return json.dumps(line, ensure_ascii=False) + "\n"


def connected(port: int) -> int:
    """Returns the number of open connections to a port in this process' network, its own
    included."""
    count = 0
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(f"/proc/self/net/{table}") as file:
            for row in map(str.split, file):
                count += row[1].endswith(f":{port:04X}") and row[3] == "01"  # ESTABLISHED
    return count
