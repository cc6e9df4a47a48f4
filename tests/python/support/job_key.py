"""Tests of encrypted jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

import support.launched  # noqa: F401 - adds the repository to sys.path
import torch_ringdist
from tests.chaos.job_key import write_key as write_key

needs_tls = pytest.mark.skipif(
    not (Path(torch_ringdist.__file__).parent / "libringdist_tls.so").exists(),
    reason="this build has no TLS: libssl-dev is missing",
)


def key_files(key: str) -> tuple[str, str, str, str]:
    """Returns the file of a key, or "", as native functions take credentials."""
    return key, "", "", ""


def key_variables(folder: Path, has_key: bool) -> dict[str, str]:
    """Returns the environment variables of a job with a new key, or of one without."""
    return {"RINGDIST_KEY_FILE": str(write_key(folder / "job.key"))} if has_key else {}
