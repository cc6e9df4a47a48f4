"""`python -m benchmarks.startup`: a run, its output, and the arguments that it rejects."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tools

ROOT = Path(__file__).resolve().parents[2]


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.startup", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize(
    ("work", "ranks", "launches", "more"),
    [("allreduce", 2, 2, ["--loaded"]), ("groups", 4, 1, [])],
    ids=["allreduce", "groups"],
)
def test_a_small_run(tmp_path: Path, work: str, ranks: int, launches: int, more: list[str]):
    out = tmp_path / "out.json"
    counts = ["--ranks", str(ranks), "--launches", str(launches)]
    done = _run(*counts, "--work", work, "--json", str(out), *more)
    assert done.returncode == 0, done.stderr
    figures = json.loads(out.read_text())
    assert figures["work"] == work and figures["cores"] > 0
    assert figures["loaded"] == bool(more)
    backends = [one["backend"] for one in figures["launches"]]
    assert backends == ["gloo", "ringdist", "ringdist", "gloo"][: 2 * launches]  # in turns
    for one in figures["launches"]:
        assert one["ranks"] == ranks and 0 < one["init"] < one["total"]
    rows = [line.split("|") for line in done.stdout.splitlines()[2:]]
    assert [(row[1].strip(), row[2].strip()) for row in rows] == [
        (str(ranks), "gloo"),
        (str(ranks), "ringdist"),
    ]
