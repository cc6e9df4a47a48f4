"""`python -m benchmarks.quantize`: a run, and the arguments that it rejects."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tools

ROOT = Path(__file__).resolve().parents[2]


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.quantize", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)


def test_a_small_run():
    done = _run("--mib", "8", "--seconds", "0.1")
    assert done.returncode == 0, done.stderr
    header, *rows = done.stdout.splitlines()
    assert "GB/s" in header
    for name in ("ringdist int8", "torch, scale given", "torch, scale found"):
        (row,) = [row for row in rows if name in row]
        assert float(row.split(name)[1].split()[0]) > 0
    assert rows[0].endswith("1.00")  # compared with itself
