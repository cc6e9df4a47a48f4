"""`python -m benchmarks.step`: a run, and the arguments that it rejects."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tools

ROOT = Path(__file__).resolve().parents[2]


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.step", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)


def test_a_small_run(tmp_path: Path):
    figures = tmp_path / "out.json"
    done = _run("--parameters", "100K", "--seconds", "0.2", "--json", str(figures))
    assert done.returncode == 0, done.stderr
    rows = done.stdout.splitlines()
    samples = json.loads(figures.read_text())["samples"]
    assert list(samples) == ["alone", "gloo", "ringdist", "ringdist-shared"]
    for name, of in samples.items():
        (row,) = [row for row in rows if row.startswith(f"| {name} ")]
        assert row.split("|")[2].strip() == str(len(of))
        assert min(of) > 0
    assert "| 1.00 | 1.00 |" in next(row for row in rows if row.startswith("| gloo "))
