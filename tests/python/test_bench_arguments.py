"""Benchmarks reject unusable arguments before they measure anything."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tools

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("benchmark", "arguments", "words"),
    [
        ("choice", "--layouts 1x1", "one rank has nothing to choose"),
        ("choice", "--layouts two", "expected hosts x ranks of each"),
        ("choice", "--layouts 1x65", "64 ranks at most"),
        ("choice", "--rounds 0", "--rounds: 0: expected at least 1"),
        ("choice", "--rate fast", "expected none, or a rate"),
        ("choice", "--operations sort", "invalid choice"),
        ("horovod", "--parts sort", "invalid choice"),
        ("horovod", "--repetitions 0", "--repetitions: 0: expected at least 1"),
        ("horovod", "--world-size 1", "--world_size: 1: expected at least 2"),
        ("host", "--sizes 7", "expected a multiple of 4"),
        ("host", "--world-size 0", "expected at least 1"),
        ("host", "--launches 0", "expected at least 1"),
        ("host", "--operations sort", "invalid choice"),
        ("host", "--table", "--json must name the file of an earlier run"),
        ("quantize", "--mib 1", "--mib"),
        ("quantize", "--seconds 0", "--seconds"),
        ("recovery", "--runs 0", "--runs: 0: expected at least 1"),
        ("recovery", "--children -1", "--children: -1: expected at least 0"),
        ("recovery", "--peer mpi", "invalid choice"),
        ("startup", "--ranks 1", "--ranks: 1: expected at least 2"),
        ("startup", "--ranks 3 --work groups", "--ranks: 3: expected at least 4"),
        ("startup", "--launches 0", "--launches: 0: expected at least 1"),
        ("startup", "--work sort", "invalid choice"),
        ("step", "--ranks 1", "--ranks"),
        ("step", "--parameters ten", "--parameters"),
        ("step", "--batch 0", "--batch"),
        ("step", "--seconds 0", "--seconds"),
    ],
)
def test_bad_arguments(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    benchmark: str,
    arguments: str,
    words: str,
):
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setattr(sys, "argv", [benchmark, *arguments.split()])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(f"benchmarks.{benchmark}", run_name="__main__")
    errors = capsys.readouterr().err
    assert ended.value.code == 2, errors
    assert words in errors
    assert "expected" in errors or "choose" in errors or "must" in errors, errors
