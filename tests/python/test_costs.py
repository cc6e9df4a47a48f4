"""The file of cost constants: reading, writing, and messages for invalid content."""

from __future__ import annotations

import json
import os
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import torch_ringdist
from torch_ringdist._costs import Costs, Link

INSIDE = Link(200, 4e10, 1e10, 300, 72)
BETWEEN = Link(30000, 1.2e9, 3e9, 3000, 72)


def content(**changes: Any) -> dict[str, Any]:
    costs = Costs(INSIDE, BETWEEN)
    whole = {"format": "torch-ringdist costs", "version": 1, **costs.numbers(), "made": {}}
    return {**whole, **changes}


def link(**changes: Any) -> dict[str, Any]:
    return {**Costs(INSIDE, BETWEEN).numbers()["inside"], **changes}


def without(given: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name != key}


def test_what_is_written_is_read(tmp_path: Path):
    path = tmp_path / "costs.json"
    Costs(INSIDE, BETWEEN).to_file(path)
    read = Costs.from_file(path)
    assert read == Costs(INSIDE, BETWEEN)
    assert read.made["host"] and read.made["date"] and read.made["torch_ringdist"]
    read.to_file(path)  # replaces the file
    assert Costs.from_file(path).made == read.made
    assert os.listdir(tmp_path) == ["costs.json"]
    assert json.loads(path.read_text())["inside"]["latency_ns"] == 200


def test_constants_are_whole_where_the_planner_counts_in_wholes(tmp_path: Path):
    path = tmp_path / "costs.json"
    path.write_text(json.dumps(content(inside=link(latency_ns=199.6, framing_bytes=71.7))))
    assert Costs.from_file(path) == Costs(INSIDE, BETWEEN)


def test_a_package_that_is_not_installed_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def fail(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", fail)
    monkeypatch.delitem(torch_ringdist.__dict__, "__version__", raising=False)
    Costs(INSIDE, BETWEEN).to_file(tmp_path / "costs.json")
    made = Costs.from_file(tmp_path / "costs.json").made
    assert made["torch_ringdist"] == "(not installed)"


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path):
    path = tmp_path / "costs.json"
    Costs(INSIDE, BETWEEN).to_file(path)
    with pytest.raises(TypeError):
        Costs(INSIDE, BETWEEN, {"host": {1}}).to_file(path)  # JSON has no sets
    assert Costs.from_file(path) == Costs(INSIDE, BETWEEN)
    assert os.listdir(tmp_path) == ["costs.json"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("", ["no JSON"]),
        ("{", ["no JSON"]),
        ("[" * 100000, ["no JSON"]),
        ("[1]", ["'format'", "'torch-ringdist costs'", "[1]", "tune"]),
        ({"version": 1}, ["'format'", "None"]),
        (content(format="NCCL topology"), ["'format'", "'NCCL topology'"]),
        (content(version=0), ["'version' must be 1", "0", "another version", "tune"]),
        (content(version=2), ["'version' must be 1", "2"]),
        (content(version=True), ["'version' must be 1", "True"]),
        (without(content(), "version"), ["'version' must be 1", "None"]),
        (without(content(), "between"), ["'between' is missing"]),
        (content(besides={}), ["'besides' is unknown", "between"]),
        (content(made=[]), ["'made'", "[]"]),
        (content(made={"host": 3}), ["'made'", "3"]),
        (content(made={"host": "\ud800"}), ["'made'", "printable"]),
        (content(inside=3), ["'inside' must be an object", "3"]),
        (content(inside=without(link(), "latency_ns")), ["'inside.latency_ns' is missing"]),
        (content(between=link(jitter_ns=3)), ["'between.jitter_ns' is unknown"]),
        (content(inside=link(latency_ns=-1)), ["inside.latency_ns", "-1", "from 0 to 1e+10"]),
        (content(inside=link(latency_ns=1e11)), ["inside.latency_ns", "100000000000.0"]),
        (content(inside=link(latency_ns="fast")), ["inside.latency_ns", "'fast'"]),
        (content(inside=link(latency_ns=None)), ["inside.latency_ns", "None"]),
        (content(between=link(bytes_per_second=0)), ["between.bytes_per_second", "from 1000"]),
        (content(between=link(bytes_per_second=1e30)), ["between.bytes_per_second", "1e+30"]),
        (content(between=link(copied_per_second=float("nan"))), ["copied_per_second", "nan"]),
        (content(between=link(copied_per_second=float("inf"))), ["copied_per_second", "inf"]),
        (content(between=link(per_message_ns=True)), ["between.per_message_ns", "True"]),
        (content(between=link(framing_bytes=10**400)), ["between.framing_bytes", "65536"]),
        ('{"format": 1, "format": 2}', ["'format' is there twice"]),
        (" " * (1 << 21), ["more than 1048576 bytes"]),
    ],
)
def test_what_is_none_is_refused_by_name(tmp_path: Path, given: Any, words: list[str]):
    path = tmp_path / "some costs.json"
    path.write_text(given if isinstance(given, str) else json.dumps(given))
    with pytest.raises(ValueError) as caught:
        Costs.from_file(path)
    for word in [*words, f"costs file '{path}'"]:
        assert word in str(caught.value)


def test_what_cannot_be_read_is_named(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe{}")
    for path, word in [
        (tmp_path / "none.json", "No such file"),
        (tmp_path, "no regular file"),
        (pipe, "no regular file"),
        (binary, "no JSON"),
    ]:
        with pytest.raises(ValueError, match=word) as caught:
            Costs.from_file(path)
        assert str(path) in str(caught.value)
