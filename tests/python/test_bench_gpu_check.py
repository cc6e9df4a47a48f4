"""benchmarks.gpu_check: its report, and its messages where something is missing."""

from __future__ import annotations

import shutil
import sys

import pytest

from benchmarks.gpu_check import __main__ as gpu_check

pytestmark = pytest.mark.tools

HEAD = {"device": "NVIDIA H100", "capability": "9.0", "copy": 2000.0, "seed": 7}
ROW = {
    "codec": "int4",
    "cases": 70,
    "different": 0,
    "first": "",
    "encode": 1800.0,
    "encode_feedback": 1500.0,
    "decode": 1000.0,
}


def test_the_report_has_shares_of_a_copy() -> None:
    text = gpu_check.table(HEAD, [ROW])
    assert "# NVIDIA H100, compute capability 9.0" in text
    assert "| int4 | 70 | 0 | 1800 GB/s | 0.90 | 1500 GB/s | 0.75 | 1000 GB/s | 0.50 |" in text
    assert "byte" not in text


def test_the_report_says_what_differs() -> None:
    text = gpu_check.table(HEAD, [{**ROW, "different": 2, "first": "33 elements: byte 4 of 60"}])
    assert "int4: 33 elements: byte 4 of 60" in text


def test_the_report_has_buckets() -> None:
    row = {"bucket": "int4", "parameters": 160, "elements": 1000, "same": True}
    row |= {"encode_each": 700.0, "encode": 40.0, "decode_each": 600.4, "decode": 39.6}
    text = gpu_check.bucket_table([row, {**row, "bucket": "int8", "same": False}])
    assert "Buckets of 160 parameters" in text
    assert "| int4 | yes | 40 us | 700 us | 40 us | 600 us |" in text
    assert "| int8 | NO |" in text
    assert gpu_check.bucket_table([]) == ""


def test_it_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool: None)
    with pytest.raises(SystemExit, match=r"CMake 3\.22 or newer and g\+\+"):
        gpu_check.build(gpu_check.ROOT / "build" / "never")


def test_a_part_says_whether_it_went_well_and_how_it_ended() -> None:
    code = "print('first'); print('last'); raise SystemExit({})"
    command = [sys.executable, "-c"]
    assert gpu_check.run("good", [*command, code.format(0)]) == ("good", True, "first\nlast")
    name, well, last = gpu_check.run("bad", [*command, "raise ValueError('why')"])
    assert (name, well) == ("bad", False) and last.endswith("ValueError: why")


def test_without_a_gpu_the_parts_of_ranks_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_check.sys, "executable", shutil.which("false"))
    [(name, well, text)] = gpu_check.of_ranks()
    assert name == "ranks" and well and text.startswith("not run: PyTorch for CUDA")
