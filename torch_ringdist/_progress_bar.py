"""Progress bar of a command: a line on stderr if that is a terminal, else nothing."""

from __future__ import annotations

import sys

_WIDTH = 30


class Bar:
    """Progress bar that is visible from the first show() to clear(). One thread at a time."""

    def __init__(self, wanted: bool = True) -> None:
        self._shown = wanted and sys.stderr.isatty()

    def show(self, what: str, share: float, detail: str = "") -> None:
        """Draws the bar. `share` is the finished part of the work, from 0 to 1."""
        if self._shown:
            full = "#" * round(share * _WIDTH)
            text = f"\r{what} [{full:.<{_WIDTH}}] {share:4.0%} {detail:24}"
            print(text, end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Erases the bar, so the next output starts on an empty line."""
        if self._shown:
            print("\r" + " " * 79, end="\r", file=sys.stderr, flush=True)
