"""Logs the events of a group for people and for programs."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import Any

from torch_ringdist._printable import printable
from torch_ringdist.elastic._settings import EVENTS


def event(name: str, text: str, **fields: Any) -> None:
    """Prints `text` on stderr, and writes a line of JSON to the launcher's events file, if there is
    one.

    Control characters are escaped, because other processes choose parts of the text.

    A write error is ignored, because training must not end for it. Lines of several processes do
    not mix, because each is one write() at the end of the file.
    """
    with contextlib.suppress(OSError):
        if text:
            print(f"ringdist: {printable(text)}", file=sys.stderr, flush=True)
    if path := os.environ.get(EVENTS):
        line = {"time": time.time(), "event": name, "pid": os.getpid(), **fields}
        with contextlib.suppress(OSError), open(path, "ab", buffering=0) as file:
            file.write(f"{json.dumps(line)}\n".encode())
