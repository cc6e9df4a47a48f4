"""ringdist bench: rows, bandwidths, checked results, failures of ranks, and bad arguments."""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.launched import preloaded

import torch_ringdist
from torch_ringdist import _bench, _bench_rank
from torch_ringdist.__main__ import main
from torch_ringdist._bench_case import DTYPES, OPERATIONS, REDUCE_OPS, Case
from torch_ringdist._errors import CommandError

PARENT = str(Path(torch_ringdist.__file__).resolve().parents[1])
SMALL = ["--min-bytes=1K", "--max-bytes=64K", "--factor=8", "--iterations=5", "--warmup=1"]
PARTS = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch):
    for name in LAUNCHER:
        monkeypatch.delenv(name, raising=False)


def options(**given: Any) -> argparse.Namespace:
    """Returns the options of the command as a rank gets them."""
    parser = argparse.ArgumentParser()
    _bench.add_arguments(parser)
    args = parser.parse_args([])
    vars(args).update(min_bytes=4, max_bytes=5000, factor=30, iterations=3, warmup=1, device="cpu")
    vars(args).update(given)
    return args


def rows_of(**given: Any) -> list[dict[str, Any]]:
    """Measures on the default group of a pool."""
    return list(_bench_rank.measure(options(**given), ["host"] * dist.get_world_size()))


def factor_of(operation: str, ranks: int) -> float:
    """Returns bus bandwidth / algorithm bandwidth, by PERFORMANCE.md, gather.cu and scatter.cu of
    nccl-tests."""
    if operation == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if operation in PARTS else 1


def all_operations() -> dict[str, list[dict[str, Any]]]:
    return {one: rows_of(operation=one) for one in OPERATIONS}


def test_every_operation_is_right_and_has_the_bandwidth_of_nccl_tests(pools):
    first, second, third = pools(3).run(all_operations)
    assert first == second == third
    for operation, rows in first.items():
        if operation == "barrier":
            assert [(row["count"], row["busbw_gb_per_s"]) for row in rows] == [(0, None)]
            continue
        assert len(rows) == 3 and not any(row["wrong"] for row in rows), operation
        for row in rows:
            parts = 3 if operation in PARTS else 1
            assert row["size_bytes"] == 4 * row["count"] * parts
            speed = row["size_bytes"] / row["time_us"] / 1e3
            assert row["algbw_gb_per_s"] == pytest.approx(speed)
            assert row["busbw_gb_per_s"] == pytest.approx(speed * factor_of(operation, 3))


def all_dtypes() -> list[Any]:
    one_size = {"min_bytes": 4096, "max_bytes": 4096}
    return [
        (dtype, op, rows_of(operation="reduce_scatter", dtype=dtype, reduce_op=op, **one_size))
        for dtype in DTYPES
        for op in REDUCE_OPS
    ]


def test_every_dtype_and_reduction_is_exact(pools):
    for dtype, op, (row,) in pools(3).run(all_dtypes)[0]:
        assert (row["dtype"], row["reduce_op"], row["wrong"]) == (dtype, op, 0)


def corrupted() -> list[int]:
    original = Case.run

    def run(self: Case) -> None:
        original(self)
        if dist.get_rank() == 1:
            self.received[-3:] += 1

    Case.run = run
    try:
        return [row["wrong"] for row in rows_of(operation="all_to_all")]
    finally:
        Case.run = original


def test_corrupted_elements_are_counted(pools):
    assert pools(2).run(corrupted) == [[2, 3, 3]] * 2  # the first size has one element per part


def with_a_codec() -> list[dict[str, Any]]:
    return rows_of(codec="int8", max_bytes=40000)


def test_with_a_codec_the_error_takes_the_place_of_the_count(pools):
    rows = pools(2).run(with_a_codec)[0]
    assert all(row["wrong"] is None and 0 < row["relative_error"] < 0.05 for row in rows)


def without_memory() -> str:
    original = _bench_rank.available_mib
    if dist.get_rank() == 1:
        _bench_rank.available_mib = lambda: 0
    try:
        rows_of()
    except CommandError as error:
        return str(error)
    finally:
        _bench_rank.available_mib = original
    return "no error"


def test_a_rank_without_memory_is_named_on_all_ranks(pools):
    said = pools(2).run(without_memory)
    assert said[0] == said[1]
    assert said[0].startswith("rank 1 (") and "give a smaller --max-bytes" in said[0]


def test_swapped_parts_are_counted():
    case = Case(options(operation="all_gather"), 4096, 0, 2)
    parts = [Case(case.args, 4096, rank, 2).given for rank in (0, 1)]
    case.received.copy_(torch.cat(parts))
    assert case.compare()[0] == 0
    case.received.copy_(torch.cat(parts[::-1]))
    assert case.compare()[0] > 6000
    case.received.zero_()
    assert case.compare()[0] > 6000


def test_sizes_are_whole_elements_of_each_rank():
    assert _bench_rank.counts(options(min_bytes=8, max_bytes=64, factor=2), 4) == [2, 4, 8, 16]
    of_parts = options(operation="gather", min_bytes=8, max_bytes=64, factor=2)
    assert _bench_rank.counts(of_parts, 4) == [1, 2, 4]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--factor=1"], "--factor: expected 2 to 1048576, got 1"),
        (["--min-bytes=x"], "--min-bytes: expected bytes as"),
        (["--min-bytes=2K", "--max-bytes=1K"], "--max-bytes: expected 2048 to"),
        (["--iterations=0"], "--iterations: expected 1 to 1000000, got 0"),
        (["--seconds=nan"], "--seconds: expected 0.001 to 3600, got nan"),
        (["--nproc-per-node=0"], "--nproc-per-node: expected 1 to 1024, got 0"),
        (["broadcast", "--root=2"], "--root: expected 0 to 1, got 2"),
        (["--root=0"], "--root: all_reduce takes none, got 0"),
        (["gather", "--reduce-op=max"], "--reduce-op: gather takes none, got 'max'"),
        (["gather", "--codec=int4"], "--codec: gather takes none, got 'int4'"),
        (["--codec=int5"], "unknown codec 'int5'"),
        (
            ["--codec=int4", "--backend=gloo"],
            "--backend: with --codec, expected ringdist, got gloo",
        ),
        (["--codec=int4", "--dtype=int8"], "--dtype: with --codec, expected float32, float16"),
        (["--backend=gloo", "--device=cuda"], "--device: torch finds no GPU here"),
        (["send_recv", "--nproc-per-node=1"], "send_recv: expected 2 ranks or more, got 1"),
    ],
)
def test_bad_arguments_start_no_rank(monkeypatch, capsys, arguments: list[str], words: str):
    monkeypatch.setattr(torch.multiprocessing, "spawn", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["bench", *arguments]) == 1
    assert f"torch_ringdist bench: {words}" in capsys.readouterr().err.replace(
        "ringdist: --codec='int5': ", ""
    )


def test_a_launcher_whose_number_of_ranks_may_change_is_refused(monkeypatch, capsys):
    monkeypatch.setenv("RINGDIST_RDZV", "127.0.0.1:1")
    assert main(["bench"]) == 1
    assert "use ringdist run --world-size" in capsys.readouterr().err


def test_help_has_examples(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["bench", "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert "ringdist bench --backend gloo" in out and "torchrun --nnodes 2" in out


@pytest.mark.check
def test_without_a_launcher_it_starts_the_ranks():
    done = subprocess.run(
        [sys.executable, "-m", "torch_ringdist", "bench", "--backend=gloo", "--json", *SMALL],
        env={**os.environ, "PYTHONPATH": PARENT, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    out = json.loads(done.stdout)
    assert (out["operation"], out["backend"], out["world_size"]) == ("all_reduce", "gloo", 2)
    assert list(out["hosts"].values()) == [[0, 1]]
    assert out["options"]["max_bytes"] == 65536
    assert set(out["versions"]) == {"torch_ringdist", "torch"}
    assert [row["size_bytes"] for row in out["rows"]] == [1024, 8192, 65536]
    for row in out["rows"]:
        assert row["wrong"] == 0 and row["iterations"] == 5
        assert 0 < row["p50_us"] <= row["p99_us"]
        of_rank = row["size_bytes"] * 2 * (2 - 1) / 2 / (row["time_us"] * 1e3)
        assert row["busbw_gb_per_s"] == pytest.approx(of_rank)


SCRIPT = """
import os, signal, sys
from torch_ringdist.__main__ import main
from torch_ringdist._bench_case import Case
original, calls = Case.run, []
def run(self):
    original(self)
    calls.append(self)
    {act}
Case.run = run
sys.exit(main(["bench", *sys.argv[1:]]))
"""


def launched(folder: Path, act: str, *arguments: str) -> list[subprocess.CompletedProcess[str]]:
    """Runs two ranks with torchrun's variables. After each call of the operation they run `act`."""
    script = folder / "rank.py"
    script.write_text(SCRIPT.format(act=act))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def one(rank: int) -> subprocess.CompletedProcess[str]:
        job = dict(zip(LAUNCHER, (str(rank), "2", str(rank), "127.0.0.1", str(port)), strict=True))
        environment = {**os.environ, "PYTHONPATH": PARENT, **job}
        return preloaded.run([str(script), *SMALL, *arguments], env=environment, timeout=60)

    with ThreadPoolExecutor(2) as both:
        return list(both.map(one, range(2)))


def test_under_a_launcher_wrong_results_are_shown_and_fail(tmp_path):
    act = "self.received[:2] += int(os.environ['RANK']) if len(calls) == 1 else 0"
    first, second = launched(tmp_path, act)
    assert first.returncode == 1 and second.returncode == 0, first.stderr + second.stderr
    assert "all_reduce by ringdist: 2 wrong elements in the results" in first.stderr
    heading, _, titles, units, *rows, average = first.stdout.splitlines()
    assert heading.startswith("# all_reduce, ringdist, cpu, torch_ringdist ")
    columns = " ".join(titles.split()[1:])
    assert columns == "size count type redop root time p50 p99 algbw busbw #wrong"
    assert " ".join(units.split()[1:]) == "(B) (elements) (us) (us) (us) (GB/s) (GB/s)"
    assert [row.split()[:5] for row in rows] == [
        [size, count, "float32", "sum", "-"]
        for size, count in (("1024", "256"), ("8192", "2048"), ("65536", "16384"))
    ]
    assert [row.split()[-1] for row in rows] == ["2", "0", "0"]
    assert average.startswith("# Avg bus bandwidth: ")
    assert second.stdout == ""


@pytest.mark.parametrize("backend", ["ringdist", "gloo"])
def test_when_a_rank_dies_the_other_one_fails(tmp_path, backend: str):
    act = "os.environ['RANK'] == '1' and len(calls) == 4 and os.kill(os.getpid(), signal.SIGKILL)"
    first, second = launched(tmp_path, act, "--backend", backend)
    assert second.returncode == -signal.SIGKILL
    assert first.returncode == 1, first.stderr
    assert "torch_ringdist bench: rank 0" in first.stderr
    assert "Traceback" not in first.stderr


def test_the_limit_of_seconds_leaves_out_iterations():
    assert _bench_rank._fitting(100, 0.001, [900_000, 200_000, 100_000]) == 5
    assert _bench_rank._fitting(3, 0.001, [200_000]) == 3
    assert _bench_rank._fitting(100, 0.001, [2_000_000]) == 1
    assert _bench_rank._fitting(0, 0.001, [200_000]) == 0


def test_the_slowest_rank_counts():
    assert _bench_rank._slowest([[1, 5, 3], [2, 4, 3]]) == [2, 5, 3]
