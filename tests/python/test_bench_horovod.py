"""`python -m benchmarks.horovod`: each part runs and is shown, and bad arguments are rejected."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.horovod import __main__ as bench
from benchmarks.horovod.messages import messages
from benchmarks.horovod.rank import PARTS

pytestmark = pytest.mark.tools

ROOT = Path(__file__).resolve().parents[2]
ROWS = {
    "single": ["dist.all_reduce", "by name", "gloo"],
    "many": ["coalesced", "grouped, by name", "each, by name", "each, gloo"],
    "training": ["DDP", "DistributedOptimizer", "DDP, int4", "DistributedOptimizer, int4"],
    "timeline": ["timeline off", "timeline on"],
    "alone": ["without init()", "after init()"],
}
COUNTED = '{"testsuites": [{"testsuite": [{"first": "178", "cached": "181"}]}]}'


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.horovod", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=230)


def _rows(table: str) -> list[str]:
    """Returns the names of the rows. Each row must name the variant that it is compared with."""
    names = []
    for row in table.splitlines()[2:]:
        names.append(row.split("  ")[0])
        other = bench.AGAINST.get(names[-1])
        assert row.endswith(f"of {other}") if other else "/" not in row, row
    return names


@pytest.mark.timeout(240)
def test_a_small_run():
    done = _run("--repetitions", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    _, *paragraphs = done.stdout.split("\n\n")
    counted, idle = paragraphs.pop(), paragraphs.pop(len(PARTS))
    assert [_rows(table) for table in paragraphs] == list(ROWS.values())
    assert idle.startswith("idle: ") and idle.endswith("% of a core")
    assert counted.startswith("Sent and received by the busiest of 64 ranks, 500 calls at once: ")


@pytest.mark.timeout(240)
def test_only_what_is_asked_for():
    done = _run("--parts", "alone", "--repetitions", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    (table,) = done.stdout.split("\n\n")[1:]
    assert _rows(table.rstrip()) == ROWS["alone"]


def test_every_row_is_held_against_one_of_its_part():
    parts = {row: part for part, rows in ROWS.items() for row in rows}
    assert all(parts[row] == parts[other] for row, other in bench.AGAINST.items())
    assert set(bench.CHOICES) == {*ROWS, "messages"}


def _program(path: Path, does: str) -> Path:
    path.write_text(f"#!/bin/sh\n{does}\n")
    path.chmod(0o700)
    return path


def test_messages_are_those_that_the_test_counts(tmp_path: Path):
    program = _program(tmp_path / "counts", f"echo '{COUNTED}' >\"${{2#*json:}}\"")
    assert messages(program) == "178 when the names are new, 181 when they are known"


def test_messages_of_no_program_and_of_one_that_fails(tmp_path: Path):
    assert "make test-cpp" in messages(tmp_path / "none")
    with pytest.raises(SystemExit, match=r"fails: .* has failed"):
        messages(_program(tmp_path / "fails", "exit 1"))


def test_tuning_refuses_what_makes_no_sense():
    command = [sys.executable, "-m", "benchmarks.horovod.tuning", "--hosts", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2
    assert "--hosts" in done.stderr
