"""Processes that are not to outlive the one that started them, however it ends."""

from __future__ import annotations

import ctypes
import signal

_PR_SET_PDEATHSIG = 1  # prctl(2); Linux


def end_with_parent() -> None:
    """This process is told to end (SIGTERM) when the thread that started it is gone."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
