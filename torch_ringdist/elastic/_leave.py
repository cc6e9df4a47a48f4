"""Lets a process that received SIGTERM end between two steps."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

# Exit status that a shell reports for a process ended by SIGTERM.
STATUS = 128 + signal.SIGTERM


class Leave(BaseException):
    """Raised at the end of a step when this process leaves the group. It is not an Exception, so
    training loops that catch Exception let it pass."""


class _Asked:
    """Records SIGTERM, and if it must wait until a step is over."""

    def __init__(self) -> None:
        self.was = False
        self.is_member = False
        self.pid = 0  # process that handles SIGTERM here

    def on_signal(self, *_: object) -> None:
        if os.getpid() != self.pid:  # a forked child has inherited the handler
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)
            return
        self.was = True
        if not self.is_member:
            raise SystemExit(STATUS)


_asked = _Asked()


# Returns True if SIGTERM has come.
def leave_was_asked() -> bool:
    return _asked.was


def set_member(is_member: bool) -> None:
    """Sets if this process is a member of a group. A member handles SIGTERM only at the end of a
    step."""
    _asked.is_member = is_member


@contextlib.contextmanager
def signals() -> Iterator[None]:
    """Handles SIGTERM inside the block. Python allows that in the main thread only; elsewhere it
    does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _asked.pid = os.getpid()
    before = signal.signal(signal.SIGTERM, _asked.on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)
