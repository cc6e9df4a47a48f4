"""Keys of encrypted jobs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import torch_ringdist

needs_tls = pytest.mark.skipif(
    not (Path(torch_ringdist.__file__).parent / "libringdist_tls.so").exists(),
    reason="this build has no TLS: libssl-dev is missing",
)


def write_key(path: Path) -> Path:
    """Writes a random key that only its user may read, as `torch_ringdist key new` does."""
    path.touch(mode=0o600)
    path.write_bytes(os.urandom(32))
    return path
