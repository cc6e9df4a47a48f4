"""What happens to a group, for people and for programs."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import Any

from torch_ringdist.elastic._settings import EVENTS


def event(name: str, text: str, **fields: Any) -> None:
    """A line of JSON in the file that the launcher names, if it does; and `text` on stderr.

    What cannot be written is not: training does not end for it.

    Lines of several processes do not mix: each is one write() at the end of the file.
    """
    with contextlib.suppress(OSError):
        if text:
            print(f"ringdist: {text}", file=sys.stderr, flush=True)
    if path := os.environ.get(EVENTS):
        line = {"time": time.time(), "event": name, "pid": os.getpid(), **fields}
        with contextlib.suppress(OSError), open(path, "ab", buffering=0) as file:
            file.write(f"{json.dumps(line)}\n".encode())
