"""python -m torch_ringdist plan: layouts, rejected arguments, text, JSON and pictures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import torch_ringdist
from torch_ringdist import _plan, _units
from torch_ringdist.__main__ import main
from torch_ringdist._costs import Costs, Link

LIBRARY = Path(torch_ringdist.__file__).parent / "libringdist_cuda.so"
needs_library = pytest.mark.skipif(
    not LIBRARY.exists(), reason="libringdist_cuda.so is not built: `make cuda`, where nvcc is"
)


def output(capsys, *arguments: str) -> str:
    assert main(["plan", *arguments]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def refusal(capsys, *arguments: str) -> str:
    assert main(["plan", *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("torch_ringdist plan: ")
    return captured.err


@pytest.fixture(autouse=True)
def no_costs_file(monkeypatch):
    monkeypatch.delenv("RINGDIST_COSTS", raising=False)


@pytest.mark.check
def test_the_choice_and_who_sends_what_to_whom(capsys):
    out = output(capsys, "--ranks", "4", "--hosts", "2", "--operation", "allreduce")
    assert out.startswith("all_reduce of 1 MiB float32 SUM, 4 ranks on 2 hosts of 2\n")
    assert "choice    hierarchical: " in out and "why  " in out
    for algorithm in ("ring", "direct", "one_shot", "recursive_doubling"):
        assert f"\n   {algorithm} " in out
    assert "\n*  hierarchical " in out
    assert "host 0: ranks 0 1\nhost 1: ranks 2 3\n" in out
    assert "0 => 2" in out and "0 -> 1" in out
    assert all(len(line) <= 100 for line in out.splitlines())


def test_rounds_that_are_the_same_are_one_line(capsys):
    out = output(capsys, "--ranks", "4", "--algorithm", "ring", "--bytes", "1M")
    assert "why       it is forced" in out
    assert (
        "  rounds 1 to 3: contributions of 256 KiB\n    0 -> 1   1 -> 2   2 -> 3   3 -> 0\n" in out
    )
    assert "  round 4: results of 256 KiB\n" in out
    assert "  rounds 5 to 6: relays of 256 KiB\n" in out


def test_more_ranks_are_summed_up(capsys):
    out = output(capsys, "--layout", "8,8,1", "--bytes", "64K", "--algorithm", "ring")
    assert "17 ranks on 3 hosts of 1 to 8" in out
    assert "14 ranges inside hosts, 3.76 KiB each, 3 ranges between hosts, 3.76 KiB each" in out


def test_one_rank_and_every_operation(capsys):
    assert "Nothing is sent." in output(capsys, "--ranks", "1")
    for operation in ("broadcast", "reduce", "all_gather", "gather", "scatter", "reduce_scatter"):
        out = output(capsys, "--ranks", "3", "--operation", operation, "--bytes", "12")
        assert out.startswith(f"{operation} of 12 B ")
    out = output(capsys, "--ranks", "3", "--operation", "barrier")
    assert "segments" not in out and "signals" in out
    out = output(capsys, "--ranks", "3", "--operation", "alltoall")
    assert out.startswith("all_to_all of 1 MiB a part")


def test_what_may_not_be_taken_says_why(capsys):
    out = output(capsys, "--ranks", "4", "--deterministic", "layout")
    assert "does not reduce in rank order, which deterministic='layout' needs" in out
    out = output(capsys, "--ranks", "4", "--codec", "int4")
    assert "serves no codecs" in out and "not its work" in out
    out = output(capsys, "--ranks", "4", "--dtype", "int32", "--reduce-op", "avg")
    assert "which an average of integers needs" in out


def test_json_has_all_of_it(capsys):
    out = json.loads(output(capsys, "--ranks", "2", "--hosts", "2", "--json", "--rate", "1gbit"))
    assert out["asked"]["hosts"] == [[0], [1]]
    assert out["asked"]["costs"]["between"]["bytes_per_second"] == pytest.approx(0.957e9 / 8)
    chosen = next(a for a in out["alternatives"] if a["algorithm"] == out["algorithm"])
    assert chosen["bytes_between"] == 2 << 20 and chosen["bytes_inside"] == 0
    # Each of the two lines carries half of the tensor twice, at about 120 MB/s.
    assert 0.0087 < chosen["seconds"] < 0.012
    assert sum(one["messages_between"] for one in out["rounds"]) == 4
    assert 0.6 < chosen["formula_seconds"] / chosen["seconds"] < 1.6


def test_a_slower_line_takes_longer(capsys):
    def seconds(*more: str) -> float:
        out = json.loads(output(capsys, "--ranks", "2", "--hosts", "2", "--json", *more))
        return min(one["seconds"] for one in out["alternatives"])

    assert seconds("--rate", "1gbit") > 5 * seconds("--rate", "10gbit")
    assert seconds("--bytes", "8", "--latency", "1ms") > 10 * seconds("--bytes", "8")


def test_costs_of_a_file(capsys, tmp_path: Path, monkeypatch):
    link = Link(1_000_000, 1e6, 1e9, 1000, 0)
    path = tmp_path / "costs.json"
    Costs(link, link, {"host": "n1", "date": "2026-01-31"}).to_file(path)
    out = output(capsys, "--ranks", "2", "--bytes", "8", "--costs", str(path))
    assert f"costs     file {path} (made on n1, 2026-01-31)" in out
    monkeypatch.setenv("RINGDIST_COSTS", str(path))
    assert f"file {path}" in output(capsys, "--ranks", "2")
    assert "built in" in output(capsys, "--ranks", "2", "--rate", "1gbit")
    assert "give it, or --rate" in refusal(
        capsys, "--ranks", "2", "--costs", str(path), "--rate", "1gbit"
    )
    path.write_text("{}")
    assert f"costs file '{path}': 'format'" in refusal(capsys, "--ranks", "2")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--ranks", "7", "--hosts", "2"], ["cannot be shared out evenly", "--layout 4,3"]),
        (["--ranks", "0"], ["--ranks: expected 1 to 4096 ranks, got 0"]),
        (["--ranks", "-3"], ["--ranks: expected 1 to 4096 ranks, got -3"]),
        (["--ranks", "4097"], ["--ranks: expected 1 to 4096 ranks, got 4097"]),
        ([], ["--ranks: how many"]),
        (["--ranks", "4", "--hosts", "0"], ["--hosts: expected at least 1, got 0"]),
        (["--ranks", "4", "--hosts", "8"], ["8 hosts for 4 ranks"]),
        (["--ranks", "1", "--hosts", "8"], ["8 hosts for 1 rank;"]),
        (["--layout", "1", "--ranks", "2"], ["its hosts have 1 rank, but"]),
        (["--ranks", "4", "--layout", "1,2"], ["hosts have 3 ranks, but --ranks is 4"]),
        (["--hosts", "3", "--layout", "1,2"], ["it has 2 hosts, but --hosts is 3"]),
        (["--layout", "1,0"], ["--layout 1,0", "at least 1", "got '0'"]),
        (["--layout", "1,,2"], ["got ''"]),
        (["--layout", "1,-2"], ["got '-2'"]),
        (["--layout", "4096,1"], ["--layout 4096,1: expected 1 to 4096 ranks, got 4097"]),
        (["--layout", "9" * 5000], ["expected the number of ranks"]),
        (["--ranks", "2", "--bytes", "1X"], ["--bytes: expected bytes as", "'1X'"]),
        (["--ranks", "2", "--bytes", "1e400"], ["--bytes: expected bytes", "which is too much"]),
        (["--ranks", "2", "--bytes", "-1"], ["--bytes", "'-1'"]),
        (["--ranks", "2", "--bytes", "6"], ["--bytes: 6 is no multiple of 4", "float32"]),
        (["--ranks", "2", "--bytes", "2T"], ["--bytes: expected at most 1 TiB"]),
        (["--ranks", "4096", "--bytes", "1T"], ["at most 256 GiB for 4096 ranks"]),
        (["--ranks", "2", "--dtype", "float33"], ["--dtype", "'float33'"]),
        (["--ranks", "2", "--dtype", "nn"], ["--dtype", "'nn'"]),
        (["--ranks", "2", "--dtype", "quint8"], ["dtype: unknown 'quint8'; have: float64"]),
        (["--ranks", "2", "--root", "2"], ["--root: expected a rank from 0 to 1, got 2"]),
        (
            ["--ranks", "2", "--operation", "all"],
            ["--operation: expected one of", "'all'"],
        ),
        (["--ranks", "2", "--reduce-op", "XOR"], ["reduce_op: unknown 'XOR'; have: SUM"]),
        (["--ranks", "2", "--reduce-op", "BAND"], ["reduce_op: BAND of float32", "it takes"]),
        (["--ranks", "2", "--algorithm", "star"], ["unknown algorithm 'star'; have: ring"]),
        (["--ranks", "2", "--codec", "int5"], ["codec='int5'", "unknown codec"]),
        (["--ranks", "2", "--codec", "int4", "--operation", "broadcast"], ["not compressed"]),
        (
            ["--ranks", "2", "--codec", "onebit>int4", "--operation", "all_gather"],
            ["encodes once, so it takes one codec"],
        ),
        (["--ranks", "2", "--codec", "int4", "--dtype", "int32"], ["a codec needs float32"]),
        (
            ["--ranks", "2", "--deterministic", "layout", "--algorithm", "ring"],
            ["does not reduce in rank order"],
        ),
        (["--ranks", "2", "--rate", "fast"], ["--rate: expected bits per second", "'fast'"]),
        (["--ranks", "2", "--rate", "0"], ["--rate: expected 10kbit"]),
        (["--ranks", "2", "--latency", "5"], ["--latency: expected a time", "'5'"]),
        (["--ranks", "2", "--latency", "11s"], ["--latency: expected at most 10s"]),
        (["--ranks", "2", "--save", "plan.txt"], ["--save", ".png, .pdf, .svg"]),
        (
            ["--ranks", "2", "--save", "/nowhere/plan.png"],
            ["--save: '/nowhere/plan.png' cannot be written: No such file"],
        ),
        (["--ranks", "2", "--save", "/proc/plan.png"], ["--save: '/proc/plan.png' cannot be"]),
        (["--ranks", "2", "--per-host", "2"], ["--per-host: only --scale"]),
        (["--ranks", "2", "--gpus", "2"], ["--gpus: only --device cuda"]),
        (["--ranks", "2", "--device-path", "host"], ["--device-path: only --device cuda"]),
        (
            ["--ranks", "2", "--device", "cuda", "--gpus", "0"],
            ["--gpus: expected 1 to 1024, got 0"],
        ),
        (["--scale", "--device", "cuda"], ["--scale: it is of times"]),
        (["--ranks", "2", "--device", "cuda", "--save", "x.png"], ["--save: it is of times"]),
        (
            ["--ranks", "2", "--device", "cuda", "--operation", "barrier"],
            ["--operation: a barrier is the host's"],
        ),
        (["--scale", "--hosts", "2"], ["--scale", "--per-host"]),
        (["--scale", "--ranks", "1"], ["--scale needs 2 to 4096, got 1"]),
        (["--scale", "--per-host", "0"], ["--per-host: expected 1 to 4096, got 0"]),
    ],
)
def test_what_is_impossible_says_why(capsys, arguments: list[str], words: list[str]):
    text = refusal(capsys, *arguments)
    for word in words:
        assert word in text


@needs_library
def test_cuda_tensors_go_by_nccl_where_each_rank_has_a_gpu(capsys):
    out = output(capsys, "--ranks", "4", "--hosts", "2", "--device", "cuda")
    assert (
        "\ndevice  cuda, by NCCL\nwhy     each rank has NCCL and a device of its own (NCCL is"
        in out
    )
    assert "\nthere   its own all_reduce\n" in out and "There are no times" in out
    assert "formula" not in out and "round 1" not in out
    out = output(capsys, "--ranks", "4", "--device", "cuda", "--reduce-op", "MIN")
    assert "with ncclSend and ncclRecv" in out and "NCCL has no MIN of float32" in out


@needs_library
def test_cuda_tensors_go_by_the_host_where_ranks_share_a_gpu(capsys):
    words = ["--ranks", "4", "--device", "cuda", "--gpus", "2"]
    out = output(capsys, *words)
    assert "device  cuda, by way of the host\nwhy     rank 0 and rank 2 use the same" in out
    assert "pinned memory that all ranks map" in out and "There are no times" in out
    out = output(capsys, *words, "--bytes", "64K")
    assert "the host's op, copies back" in out and "less than 256 KiB" in out
    assert "What follows is the host's op" in out and "\nchoice  " in out and "round 1" in out
    device = json.loads(output(capsys, *words, "--json"))["device"]
    assert device["by_nccl"] is False and device["host_op"] is False
    assert json.loads(output(capsys, "--ranks", "2", "--json"))["device"] is None


@needs_library
def test_what_is_refused_of_cuda_tensors(capsys):
    words = ["--ranks", "4", "--device", "cuda"]
    text = refusal(capsys, *words, "--gpus", "2", "--device-path", "nccl")
    assert "NCCL is asked for, but rank 0 and rank 2" in text
    text = refusal(capsys, *words, "--codec", "lossless", "--bytes", "8G")
    assert "codec 'lossless' of 2147483648 elements on a device" in text
    assert "\nwhy     it is asked for\n" in output(capsys, *words, "--device-path", "host")


@pytest.mark.skipif(LIBRARY.exists(), reason="libringdist_cuda.so is built")
def test_without_the_library_nothing_is_said_of_cuda_tensors(capsys):
    assert "no library for CUDA" in refusal(capsys, "--ranks", "2", "--device", "cuda")


def test_hundreds_of_ranks(capsys):
    out = output(capsys, "--ranks", "256", "--hosts", "32", "--bytes", "100MB")
    assert "256 ranks on 32 hosts of 8" in out
    assert "host 31: ranks 248 249" in out


def test_pictures(capsys, tmp_path: Path):
    pytest.importorskip("matplotlib")
    for arguments in (
        ["--ranks", "4", "--hosts", "2"],
        ["--layout", "16,8"],
        ["--ranks", "1"],
        ["--ranks", "32", "--operation", "gather", "--codec", ""],
    ):
        path = tmp_path / "plan.png"
        output(capsys, *arguments, "--save", str(path))
        assert path.read_bytes().startswith(b"\x89PNG")
        path.unlink()


def test_a_picture_that_cannot_be_written_leaves_the_old_one(capsys, tmp_path: Path, monkeypatch):
    figure = pytest.importorskip("matplotlib.figure")

    def fail(_self: object, name: str, **_options: object) -> None:
        Path(name).write_bytes(b"a part")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(figure.Figure, "savefig", fail)
    path = tmp_path / "plan.png"
    path.write_bytes(b"old")
    assert main(["plan", "--ranks", "2", "--save", str(path)]) == 1
    assert f"--save: {str(path)!r} cannot be written: No space" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [path] and path.read_bytes() == b"old"


def test_a_single_round_of_many_ranks_is_drawn(monkeypatch):
    pytest.importorskip("matplotlib")
    drawn = []
    monkeypatch.setattr("torch_ringdist._plan_plot._save", lambda figure, _: drawn.append(figure))
    words = ["--ranks", "32", "--hosts", "4", "--operation", "gather"]
    assert main(["plan", *words, "--algorithm", "direct", "--save", "x.png"]) == 0
    bars = drawn[0].axes[1].patches
    assert [bar.get_width() for bar in bars] == [0.8, 0.8]
    assert all(bar.get_height() > 0 for bar in bars)


def test_scale(capsys, tmp_path: Path):
    out = output(capsys, "--scale", "--ranks", "33", "--per-host", "4", "--bytes", "1M")
    lines = [line.split() for line in out.splitlines()[3:]]
    assert lines[0][:3] == ["ranks", "choice", "ring"]
    assert [line[0] for line in lines[1:]] == ["2", "4", "8", "16", "32"]
    rows = json.loads(output(capsys, "--scale", "--ranks", "8", "--per-host", "4", "--json"))
    assert [row["ranks"] for row in rows] == [2, 4, 8]
    ring = [row["alternatives"][0]["seconds"] for row in rows]
    assert ring[2] > ring[1] > 0
    pytest.importorskip("matplotlib")
    path = tmp_path / "scale.svg"
    output(capsys, "--scale", "--ranks", "8", "--save", str(path))
    assert "<svg" in path.read_text()


def test_units():
    assert _units.parse_bytes("b", "64k") == _units.parse_bytes("b", "64KiB") == 65536
    assert _units.parse_bytes("b", "100MB") == 100_000_000
    assert _units.parse_bytes("b", "1.5M") == 3 << 19
    assert _units.parse_rate("r", "2.5gbit") == 2.5e9
    assert _units.parse_time("t", "50us") == 50_000
    assert _units.format_bytes(1536) == "1.50 KiB" and _units.format_bytes(8) == "8 B"
    assert _units.format_seconds(1.23e-5) == "12.3 us" and _units.format_seconds(90) == "90 s"
    assert _units.format_rate(1e10) == "10 Gbit/s" and _units.format_rate(1e8) == "100 Mbit/s"


def test_layouts():
    assert _plan.hosts_of(6, 3, None) == [[0, 1], [2, 3], [4, 5]]
    assert _plan.hosts_of(None, None, "1, 2") == [[0], [1, 2]]
    assert _plan.hosts_of(2, None, None) == [[0, 1]]
