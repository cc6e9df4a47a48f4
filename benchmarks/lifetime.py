"""Processes that are not to outlive the one that started them, however it ends."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1  # prctl(2); Linux


def end_with_parent(parent: int) -> None:
    """This process is told to end (SIGTERM) when the thread of `parent` that started it is gone."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it was too late for that
        os.kill(os.getpid(), signal.SIGTERM)
