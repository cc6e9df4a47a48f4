"""Load on the machine during a test."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keeps this many processes busy while the body runs."""
    command = [sys.executable, "-c", "print(flush=True)\nwhile True: pass"]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(processes)]
    try:
        for one in running:
            assert one.stdout is not None
            one.stdout.readline()  # the process has begun
        yield
    finally:
        for one in running:
            one.kill()
            one.communicate()
