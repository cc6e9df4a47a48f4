"""`python -m benchmarks.startup`: that it runs, what it writes, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.startup", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize(("work", "more"), [("allreduce", ["--loaded"]), ("groups", [])])
def test_a_small_run(tmp_path: Path, work: str, more: list[str]):
    out = tmp_path / "out.json"
    done = _run("--ranks", "4", "--launches", "2", "--work", work, "--json", str(out), *more)
    assert done.returncode == 0, done.stderr
    figures = json.loads(out.read_text())
    assert figures["work"] == work and figures["cores"] > 0
    assert figures["loaded"] == bool(more)
    backends = [one["backend"] for one in figures["launches"]]
    assert backends == ["gloo", "ringdist", "ringdist", "gloo"]  # in turns
    for one in figures["launches"]:
        assert one["ranks"] == 4 and 0 < one["init"] < one["total"]
    rows = [line.split("|") for line in done.stdout.splitlines()[2:]]
    assert [(row[1].strip(), row[2].strip()) for row in rows] == [("4", "gloo"), ("4", "ringdist")]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--ranks", "1"), "--ranks: 1: expected at least 2"),
        (("--ranks", "3", "--work", "groups"), "--ranks: 3: expected at least 4"),
        (("--launches", "0"), "--launches: 0: expected at least 1"),
        (("--work", "sort"), "invalid choice"),
    ],
)
def test_bad_arguments(arguments: tuple[str, ...], words: str):
    done = _run(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
