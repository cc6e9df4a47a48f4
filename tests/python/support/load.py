"""What else runs on the machine of a test."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Beside so many others that never wait."""
    running = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)
    ]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()
