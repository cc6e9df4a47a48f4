"""PyTorch's flight recorder. It is a separate program, because check_torch_versions.py also runs
it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.torchrun import torchrun

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "smoke_flight_recorder.py"


def test_operations_and_failures_are_recorded():
    done = torchrun(SCRIPT, ranks=2, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    if "has no flight recorder" in done.stdout:
        pytest.skip(done.stdout.strip() + "; tools/check_torch_versions.py tries 2.15")
    assert "recorded, torch" in done.stdout
