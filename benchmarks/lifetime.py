"""Processes that are not to outlive the one that started them, however it ends."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1  # prctl(2); Linux


def end_with_parent(parent: int, by: int = signal.SIGTERM) -> None:
    """This process is told to end, `by` a signal, when the thread of `parent` that started it is
    gone. One that may be stopped then ends by SIGKILL only."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, by)
    if os.getppid() != parent:  # it was too late for that
        os.kill(os.getpid(), by)
