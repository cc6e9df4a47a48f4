"""How far a command is: a line on a terminal's stderr, and nothing elsewhere."""

from __future__ import annotations

import sys

_WIDTH = 30


class Bar:
    """Shown from the first show() to clear(). One thread."""

    def __init__(self, wanted: bool = True) -> None:
        self._shown = wanted and sys.stderr.isatty()

    def show(self, what: str, share: float, detail: str = "") -> None:
        """`share`: of the work, 0 to 1."""
        if self._shown:
            full = "#" * round(share * _WIDTH)
            text = f"\r{what} [{full:.<{_WIDTH}}] {share:4.0%} {detail:24}"
            print(text, end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """So that what is printed next begins in an empty line."""
        if self._shown:
            print("\r" + " " * 79, end="\r", file=sys.stderr, flush=True)
