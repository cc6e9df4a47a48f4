"""Prepares stdout and stderr for the output of a command."""

from __future__ import annotations

import io
import os
import sys


def prepare() -> None:
    """Makes every text printable: characters that a stream cannot encode are escaped.

    A stream that the parent process closed is None. It is replaced by one that discards all.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            nothing = open(os.devnull, "w", errors="backslashreplace")  # noqa: SIM115 - stays open
            setattr(sys, name, nothing)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
