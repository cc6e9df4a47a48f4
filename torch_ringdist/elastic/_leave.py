"""A process is asked to end: it does so between two steps."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

# As a shell has it of a process that a signal ended.
STATUS = 128 + signal.SIGTERM


class Leave(BaseException):
    """Raised where a step is over: this process takes part no longer. Not an Exception, so that
    training loops that catch those let it through."""


class _Asked:
    """Whether SIGTERM has come, and whether it may wait until a step is over."""

    def __init__(self) -> None:
        self.was = False
        self.is_member = False

    def on_signal(self, *_: object) -> None:
        self.was = True
        if not self.is_member:
            raise SystemExit(STATUS)


_asked = _Asked()


def leave_was_asked() -> bool:
    return _asked.was


def set_member(is_member: bool) -> None:
    """Of a group: others count on this process."""
    _asked.is_member = is_member


@contextlib.contextmanager
def signals() -> Iterator[None]:
    """SIGTERM is understood inside, where Python lets it be: in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _asked.on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)
