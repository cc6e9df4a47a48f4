"""Addresses: of this machine, and whether somebody listens there."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import time

USUAL_PORT = 29500  # of torch, where nobody says another

_PATIENCE = 60.0  # seconds for the launcher that holds the store to come up
_PROBE = 1.0
_POLL = 0.5


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


def is_left_alone() -> bool:
    """Who has started this process has closed its stdin, or has ended."""
    ready, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(ready) and not os.read(sys.stdin.fileno(), 4096)


def wait_for(host: str, port: int) -> None:
    """Until it answers. Raises ConnectionError: it does not."""
    deadline = time.monotonic() + _PATIENCE
    while not answers(host, port):
        if time.monotonic() > deadline:
            raise ConnectionError(
                f"no launcher holds a store at {host}:{port} (waited {_PATIENCE:g} s): start one "
                f"on {host} with the same --rdzv"
            )
        time.sleep(_POLL)
