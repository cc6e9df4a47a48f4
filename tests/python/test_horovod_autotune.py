"""HOROVOD_AUTOTUNE: fusion of calls, chosen by the times of steps."""

from __future__ import annotations

import csv
import itertools
import json
import random
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.launched import ringdistrun

from torch_ringdist.horovod._autotune import FUSION_BYTES, IN_FLIGHT, WARM_UP, Autotune
from torch_ringdist.horovod._successive_halving import SuccessiveHalving


def test_halving_finds_the_best_of_many():
    search = SuccessiveHalving(list(range(18)))
    count = 0
    while not search.is_over:
        search.add(abs(search.current - 11) + (count * 7919 % 13) / 30)
        count += 1
    assert search.current == 11
    assert count < 200 - WARM_UP
    search.add(0.0)  # no effect any more
    assert search.current == 11


def test_halving_of_one_is_over():
    assert SuccessiveHalving(["only"]).is_over
    assert SuccessiveHalving(["only"]).current == "only"


def test_an_outlier_does_not_count():
    search = SuccessiveHalving(["slow", "fast"])
    for sample in (2.0, 2.0, 2.0, 1.0, 90.0, 1.0):
        search.add(sample)
    assert search.is_over and search.current == "fast"


def _group(tuned: list[tuple[int, int]]) -> Any:
    return SimpleNamespace(named=SimpleNamespace(tune=lambda *given: tuned.append(given)))


def _search(log: Path | None, kept: Path) -> tuple[Autotune, list[tuple[int, int]], int]:
    tuned: list[tuple[int, int]] = []
    autotune = Autotune(_group(tuned), "4 ranks", log, kept)
    drawn, now, steps = random.Random(5), 0.0, 0
    while not autotune.is_over:
        steps += 1
        size, flying = tuned[-1] if tuned else (64 << 10, 2)
        best = size == 4 << 20 and flying == 2
        now += (0.8 if best else 1.0) * (1 + 0.05 * drawn.random())
        autotune.step(now)
    return autotune, tuned, steps


def test_it_searches_logs_and_keeps(tmp_path: Path):
    log, kept = tmp_path / "log.csv", tmp_path / "new" / "kept.json"
    autotune, tuned, steps = _search(log, kept)
    assert autotune.setting == tuned[-1] == (4 << 20, 2)
    assert steps <= 200
    assert set(tuned) == set(itertools.product(FUSION_BYTES, IN_FLIGHT))
    rows = list(csv.DictReader(log.open()))
    assert [row["state"] for row in rows] == ["sample"] * (len(rows) - 1) + ["best"]
    assert rows[-1]["fusion_bytes"] == str(4 << 20)
    assert json.loads(kept.read_text()) == {"4 ranks": [4 << 20, 2]}
    _, tuned, steps = _search(None, kept)
    assert (steps, tuned) == (0, [(4 << 20, 2)])


def test_a_file_that_is_torn_is_made_anew(tmp_path: Path):
    kept = tmp_path / "kept.json"
    kept.write_text("{")
    _search(None, kept)
    assert json.loads(kept.read_text()) == {"4 ranks": [4 << 20, 2]}


SCRIPT = """
import torch, torch_ringdist.horovod as hvd
hvd.init()
net = torch.nn.Sequential(*(torch.nn.Linear(20, 20) for _ in range(8)))
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(net.parameters(), lr=0.1), named_parameters=net.named_parameters()
)
for _ in range({}):
    optimizer.zero_grad()
    net(torch.randn(4, 20)).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("set_by", ["option", "nothing"])
def test_a_training_is_tuned(tmp_path: Path, set_by: str):
    log = tmp_path / "log.csv"
    options = ["--autotune", f"--autotune-log-file={log}"] if set_by == "option" else []
    script = [sys.executable, "-c", SCRIPT.format(160)]
    done = ringdistrun("-np", "2", *options, *script, XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert log.exists() == bool(options)
    if not options:
        return
    rows = list(csv.DictReader(log.open()))
    assert rows[-1]["state"] == "best", rows[-1]
    kept = json.loads((tmp_path / "torch_ringdist" / "horovod-autotune.json").read_text())
    [(key, setting)] = kept.items()
    assert key == "2 ranks, 1 hosts, 3360 elements"
    assert [str(value) for value in setting] == [
        rows[-1]["fusion_bytes"],
        rows[-1]["batches_in_flight"],
    ]
