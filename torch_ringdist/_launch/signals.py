"""Signals that request a launcher to end."""

from __future__ import annotations

import signal

SAME_REQUEST = 1.0  # a second signal within these seconds counts as the first


def that_ask() -> list[signal.Signals]:
    """Returns these signals, except those that the parent process ignores (nohup)."""
    usual = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    return [one for one in usual if signal.getsignal(one) is not signal.SIG_IGN]
