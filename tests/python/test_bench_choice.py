"""`python -m benchmarks.choice`: its comparisons, its output, and the arguments that it rejects."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.choice.cells import Cell, cells_of  # noqa: E402
from benchmarks.choice.rank import CHOOSES  # noqa: E402
from benchmarks.choice.report import Row, summary, table  # noqa: E402
from benchmarks.net import hosts as net  # noqa: E402
from benchmarks.net.layout import Layout  # noqa: E402
from torch_ringdist._costs import Costs  # noqa: E402

pytestmark = pytest.mark.tools

REASON = net.why_not()


def bench(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    of_ranks = {name: value for name, value in os.environ.items() if name != "RINGDIST_ALGORITHM"}
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.choice", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        env={**of_ranks, **environment},
    )


@pytest.mark.hosts
def test_a_small_run(tmp_path: Path):
    words = ["--layouts", "1x2", "1+2", "--operations", "all_reduce", "gather", "all_to_all"]
    words += ["--sizes", "8", "64K", "--rounds", "2", "--out", str(tmp_path)]
    done = bench(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "choice.json").read_text())["rows"]
    names = ("all_reduce", "gather", "all_to_all")
    expected = [(name, size) for name in names for size in (8, 65536)]
    for layout in ("1x2", "1+2"):
        of_layout = [row for row in rows if row["layout"] == layout]
        assert [(row["operation"], row["bytes"]) for row in of_layout] == expected
        assert layout in done.stdout.splitlines()
    for row in rows:
        assert row["choice"] in row["times"] and row["best"] in row["times"]
        assert all(0 < time < 1e9 for time in row["times"].values()), row
    # An alltoall has one algorithm, so there is no choice, but a predicted time.
    near = sum(row["near"] for row in rows if row["operation"] != "all_to_all")
    assert f"all layouts: {near} of 8 choices" in done.stdout
    foreseen = [row["foreseen"] for row in rows]
    assert all(0 < ratio < 1000 for ratio in foreseen)
    right = sum(0.8 <= ratio <= 1.2 for ratio in foreseen)
    assert f"\n{right} of 12 times foreseen" in done.stdout.split("all layouts")[1]
    again = bench(*words)
    assert again.stdout == done.stdout, "what was measured is not measured again"


def test_who_serves():
    sizes = [8, 1 << 20]
    cells = cells_of(Layout.parse("2x2"), ["all_reduce", "barrier"], sizes, Costs.built_in())
    assert [(one.operation, one.bytes) for one in cells] == [
        ("all_reduce", 8),
        ("all_reduce", 1 << 20),
    ]
    for cell in cells:
        assert {"ring", "direct", "hierarchical"} <= set(cell.algorithms)
        assert cell.choice in cell.algorithms
        assert "ring" not in cell.alike
    [cell] = cells_of(Layout.parse("1x4", 1), ["scatter"], [1 << 20], Costs.built_in())
    assert set(cell.alike) == {"direct", "hierarchical_direct"}, "on one host"


@pytest.mark.parametrize(
    ("taken", "best", "near"),
    [(2_900, 1_000, True), (3_100, 1_000, False), (109_000, 1e5, True), (111_000, 1e5, False)],
)
def test_near(taken: float, best: float, near: bool):
    cell = Cell("all_reduce", 8, "ring", 1.1 * taken, ("ring",), ("direct", "ring"))
    other = Row("1x2", cell, {CHOOSES: taken, "direct": best, "ring": taken})
    itself = Row("1x2", cell, {CHOOSES: taken, "direct": taken, "ring": best})
    assert (other.is_near, itself.is_near) == (near, near)
    assert (other.best, itself.best) == ("direct", "ring")
    assert (other.is_same, itself.is_same) == (False, True)
    missed = 0 if near else 1
    assert f"{2 - 2 * missed} of 2" in summary([other, itself])
    assert f"others {missed} (=)" in summary([other, itself])
    assert f"and {missed} (!)" in summary([other, itself])
    assert "2 of 2 times foreseen within 20%" in summary([other, itself])
    assert " 1.10 " in table([other])
    assert ("! direct" in table([other])) == (not near)
    assert ("= ring" in table([itself])) == (not near)


def test_nothing_to_choose():
    done = bench(RINGDIST_ALGORITHM="ring")
    assert done.returncode == 2 and "RINGDIST_ALGORITHM=ring: unset it" in done.stderr
    if REASON is None:
        done = bench("--layouts", "1x2", "--operations", "barrier")
        assert done.returncode == 1 and "1x2: these operations have no tensors" in done.stderr, (
            done.stderr
        )
