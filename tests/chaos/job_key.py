"""Keys of encrypted jobs."""

from __future__ import annotations

import os
from pathlib import Path


def write_key(path: Path) -> Path:
    """Writes a random key that only its user may read, as `torch_ringdist key new` does."""
    path.touch(mode=0o600)
    path.write_bytes(os.urandom(32))
    return path
