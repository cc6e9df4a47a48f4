"""Checks addresses: which ones belong to this machine, and where a server listens."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import time

USUAL_PORT = 29500  # default port of torch

_PATIENCE = 60.0  # seconds to wait for the launcher with the store
_PROBE = 1.0
_POLL = 0.5


def is_here(host: str) -> bool:
    """Returns True if `host` is an address of this machine, that is, if it can be bound. Raises
    OSError if it is an unknown name."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise OSError(f"{host}: {error.strerror}") from None
    except UnicodeError:
        raise _no_name(host) from None
    for family, kind, _, _, address in found:
        with contextlib.suppress(OSError), socket.socket(family, kind) as one:
            one.bind(address)
            return True
    return False


# Returns the error for a name with a label that is empty or has more than 63 characters.
def _no_name(host: str) -> OSError:
    return OSError(f"{host}: it is no name of a host")


def answers(host: str, port: int) -> bool:
    """Returns True if a server accepts connections there. Raises OSError if `host` cannot be a
    name."""
    try:
        with contextlib.suppress(OSError), socket.create_connection((host, port), _PROBE):
            return True
    except UnicodeError:
        raise _no_name(host) from None
    return False


def is_left_alone() -> bool:
    """Returns True if the parent has closed this process' stdin or has ended."""
    ready, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(ready) and not os.read(sys.stdin.fileno(), 4096)


def wait_for(host: str, port: int) -> None:
    """Waits until a server accepts connections there. Raises ConnectionError after 60 s."""
    deadline = time.monotonic() + _PATIENCE
    while not answers(host, port):
        if time.monotonic() > deadline:
            raise ConnectionError(
                f"no launcher holds a store at {host}:{port} (waited {_PATIENCE:g} s): start one "
                f"on {host} with the same --rdzv"
            )
        time.sleep(_POLL)
