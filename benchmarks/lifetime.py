"""Ends processes when the process that started them ends, however that happens."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1  # prctl(2); Linux


def end_with_parent(parent: int, by: int = signal.SIGTERM) -> None:
    """Makes the kernel send signal `by` to this process when the thread of `parent` that started it
    has ended. For a process that may be stopped, use SIGKILL, because other signals then have no
    effect."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, by)
    if os.getppid() != parent:  # the parent had already ended
        os.kill(os.getpid(), by)
