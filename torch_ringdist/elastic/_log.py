"""What happens to a group, for people and for programs."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from torch_ringdist.elastic._settings import EVENTS


def event(name: str, text: str, **fields: Any) -> None:
    """A line of JSON in the file that the launcher names, if it does; and `text` on stderr.

    Lines of several processes do not mix: each is one write() at the end of the file.
    """
    if text:
        print(f"ringdist: {text}", file=sys.stderr, flush=True)
    if path := os.environ.get(EVENTS):
        line = {"time": time.time(), "event": name, "pid": os.getpid(), **fields}
        append(path, json.dumps(line))


def append(path: str | os.PathLike[str], line: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)
