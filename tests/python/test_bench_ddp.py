"""`make bench-ddp` and `make bench-critics`: conclusions from figures, and one small run."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import kept  # noqa: E402
from benchmarks.ddp import stepping_report, steps_report, steps_table, training_report  # noqa: E402
from benchmarks.ddp.candidates import Candidate  # noqa: E402
from benchmarks.ddp.cells import Cells  # noqa: E402
from benchmarks.ddp.links import ONE_HOST  # noqa: E402
from benchmarks.ddp.ratios import paired_ratio  # noqa: E402
from benchmarks.ddp.settings import Stepping, Training, from_text  # noqa: E402
from benchmarks.ddp.study import Study  # noqa: E402
from benchmarks.kept import to_text  # noqa: E402

pytestmark = pytest.mark.tools

MACHINE = {"cpu": "one", "cores": 2, "torch": "2", "date": "2000-01-01 00:00:00"}
NOISE = (0.99, 1.0, 1.01, 1.0, 0.995, 1.005)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("gloo", ("gloo", "", "", 0, 0)),
        ("gloo+fp16", ("gloo", "", "fp16", 0, 0)),
        ("ringdist+powersgd:4@2", ("ringdist", "", "powersgd", 4, 2)),
        ("gloo+local:4@11", ("gloo", "", "local", 4, 11)),
        ("ringdist:powersgd:4", ("ringdist", "powersgd:4", "", 0, 0)),
        ("ringdist:onebit+h>int4", ("ringdist", "onebit+h>int4", "", 0, 0)),
    ],
)
def test_a_candidate(text: str, parts: tuple) -> None:
    assert Candidate.parse(text) == Candidate(text, *parts)


@pytest.mark.parametrize(
    "text",
    ["", "nccl", "gloo:int4", "gloo+fp16:1@2", "gloo+powersgd", "gloo+powersgd:4@1", "ringdist:"],
)
def test_a_bad_candidate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="candidate '"):
        Candidate.parse(text)


def test_local_sgd_averages_now_and_then() -> None:
    local = Candidate.parse("gloo+local:4@3")
    assert [step for step in range(13) if local.averages_at(step)] == [0, 1, 2, 3, 7, 11]


def test_a_paired_ratio() -> None:
    ratio = paired_ratio([2.0, None, 8.0, 1.0], [1.0, 5.0, 2.0, None])
    # Logarithms ln 2 and ln 4: mean 1.5 ln 2, standard error ln 2 / 2, t = 12.706.
    assert ratio.mean == pytest.approx(2**1.5)
    assert math.log(ratio.high / ratio.mean) == pytest.approx(12.7062 * math.log(2) / 2, rel=1e-4)
    assert ratio.low * ratio.high == pytest.approx(ratio.mean**2)
    with pytest.raises(ValueError, match="got 1, expected at least 2"):
        paired_ratio([1.0], [1.0])


def stepping(seconds: dict[str, float], codec: str = "none", rate: str = "none") -> dict:
    """Returns a result with these durations of steps and small deviations."""
    settings = Stepping(rate, "mlp5m", 32, tuple(seconds), rounds=len(NOISE))
    told = {}
    for number, (text, value) in enumerate(seconds.items()):
        noise = NOISE[number:] + NOISE[:number]
        told[text] = {"seconds": [value * each for each in noise], "codec": None}
        if text == stepping_report.AUTO:
            told[text]["codec"] = codec
    return {
        "settings": json.loads(to_text(settings)),
        "commit": "abc",
        "machine": MACHINE,
        "candidates": told,
        "absent": {},
    }


def study(tmp_path: Path, **steps: int | None) -> Study:
    rows = [
        {
            "task": "mlp5m",
            "batch": 32,
            "variant": codec,
            "steps_to_target": needed,
            "steps_uncompressed": 50,
            "metric": 0.97,
        }
        for codec, needed in steps.items()
    ]
    path = tmp_path / "critics.json"
    path.write_text(json.dumps({"commit": "abc", "rows": rows}))
    return Study.load(path)


def test_the_table_of_steps(tmp_path: Path) -> None:
    text = steps_report.markdown(study(tmp_path, none=50, int4=60, onebit=None))
    assert "| batch | none | int4 | onebit |" in text
    assert "| 32 | 50, 97.0% | 60, 97.0% | not reached, 97.0% |" in text
    assert "commit abc." in text


def test_compression_that_helps_and_an_auto_that_knows() -> None:
    cell = stepping_report.make_cell(
        stepping(
            {"gloo": 0.4, "ringdist": 0.3, "ringdist:int4": 0.1, "ringdist:auto": 0.1}, "int4"
        ),
        Study(),
    )
    assert (cell.reference, cell.compressed, cell.fastest) == ("ringdist", *["ringdist:int4"] * 2)
    assert cell.helps.mean == pytest.approx(1 / 3, rel=0.02)
    assert cell.compression_helps and cell.auto_is_best


def test_steps_that_a_codec_needs_count(tmp_path: Path) -> None:
    result = stepping({"ringdist": 0.3, "ringdist:int4": 0.2, "ringdist:auto": 0.2}, "int4")
    needs = study(tmp_path, none=50, int4=100)
    cell = stepping_report.make_cell(result, needs)
    assert cell.fastest == "ringdist"
    assert cell.helps.mean == pytest.approx(4 / 3, rel=0.02)
    assert not cell.compression_helps and not cell.auto_is_best
    never = stepping_report.make_cell(result, study(tmp_path, none=50, int4=None))
    assert math.isinf(never.helps.mean) and not never.compression_helps
    lucky = study(tmp_path, none=50, int4=25)
    assert lucky.more_steps("mlp5m", 32, "int4") == 1.0
    assert lucky.more_steps("mlp5m", 8, "int4") is None


def test_auto_on_a_fast_link_has_to_choose_none() -> None:
    good = stepping({"ringdist": 0.3, "ringdist:auto": 0.305}, "none")
    assert stepping_report.markdown([good], Study()).count(", as expected") == 1
    slow = stepping({"ringdist": 0.3, "ringdist:auto": 0.33}, "none")
    compressing = stepping({"ringdist": 0.3, "ringdist:auto": 0.3}, "fp16")
    for bad in (slow, compressing):
        assert stepping_report.markdown([bad], Study()).count(", not as expected") == 1


def test_one_host_has_a_table_of_its_own() -> None:
    alone = stepping({"ringdist": 0.3, "ringdist:auto": 0.3}, "none", ONE_HOST)
    text = stepping_report.markdown([alone], Study())
    assert "| one host | 32 |" in text
    assert "one host, mlp5m, batch 32: auto takes none, step ratio" in text
    assert "4 ranks of one host on 2 cores" in text
    assert from_text(json.dumps(alone["settings"])).name == "one-host-mlp5m-batch32"


def training(seed: int, rate: str, seconds: dict[str, float], reached: int = 30) -> dict:
    """Returns a result in which each variant reaches the target at that step of 40."""
    settings = Training(rate, seed, tuple(seconds), 40, 0.96, to_target=False)
    accuracies = [(step, 0.9 if step < reached else 0.97) for step in range(1, 41)]
    told = {k: {"seconds": [v] * 40, "accuracies": accuracies} for k, v in seconds.items()}
    return {
        "settings": json.loads(to_text(settings)),
        "commit": "abc",
        "machine": MACHINE,
        "candidates": told,
        "absent": {"ringdist:auto": "unknown codec"},
    }


def test_time_to_accuracy() -> None:
    seconds = {"gloo": 0.3, "gloo+fp16": 0.2, "ringdist": 0.3, "ringdist:int4": 0.08}
    results = [training(seed, "1gbit", seconds) for seed in (1, 2)]
    rows = {row.candidate: row for row in training_report.make_rows(results)}
    assert rows["ringdist:int4"].seconds == pytest.approx(30 * 0.08)
    assert [run.steps for run in rows["gloo"].runs] == [30, 30]
    assert rows["gloo"].final == pytest.approx(0.97)
    text = training_report.markdown(results, [])
    assert "ringdist:int4 / gloo+fp16: 0.40 (limit 0.45, met)" in text
    assert "a step, ringdist:int4 / gloo: 0.27 (limit 0.30, met)" in text
    assert "final accuracy of ringdist:int4 against uncompressed: +0.00" in text
    assert "ringdist:auto: not in this version (unknown codec)" in text


def test_one_seed_that_fails_leaves_no_mean() -> None:
    results = [training(1, "1gbit", {"gloo": 0.3}), training(2, "1gbit", {"gloo": 0.3}, reached=99)]
    [row] = training_report.make_rows(results)
    assert row.seconds is None
    assert "not by all seeds" in training_report.markdown(results, [])


def test_tuning_takes_the_first_at_the_target() -> None:
    seconds = {"gloo+powersgd:1@2": 0.1, "gloo+powersgd:4@2": 0.2}
    result = training(1, "1gbit", seconds)
    assert training_report.tune(result) == "gloo+powersgd:1@2"
    result["candidates"]["gloo+powersgd:1@2"]["accuracies"] = [(40, 0.8)]
    assert training_report.tune(result) == "gloo+powersgd:4@2"


def test_results_are_found_by_settings_and_commit(tmp_path: Path, monkeypatch) -> None:
    settings = Stepping("1gbit", "text", 8, ("gloo", "ringdist"))
    assert from_text(to_text(settings)) == settings
    cells = Cells(tmp_path, "abc")
    assert cells.find(settings) is None
    assert cells.keep(settings, {"seen": True}) == cells.find(settings)
    assert Cells(tmp_path, "abd").find(settings) is None
    assert Cells(tmp_path, "abc", fresh=True).find(settings) is None
    assert cells.find(Stepping("1gbit", "text", 8, ("gloo",))) is None
    monkeypatch.setenv("RINGDIST_ALGORITHM", "ring")
    assert Cells(tmp_path, "abc").find(settings) is None, "ranks inherit it"
    monkeypatch.undo()
    assert Cells(tmp_path, kept.UNKNOWN).find(settings) is None
    cells.path(settings).write_text('{"commit": "ab')
    assert cells.find(settings) is None, "of a disk that was full"


def test_what_is_changed_since_a_commit_counts(tmp_path: Path, monkeypatch) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(kept, "ROOT", tmp_path)
    assert kept.commit(["a"]) == kept.UNKNOWN
    git("init")
    file = tmp_path / "a"
    file.write_text("1")
    git("add", "a")
    git("commit", "-m", "a")
    found = {kept.commit(["a"])}
    for text in "234":
        file.write_text(text)
        found.add(kept.commit(["a"]))
    file.write_text("1")
    assert kept.commit(["a"]) in found
    assert kept.commit(["a", "b"]) in found
    for text in "56":
        (tmp_path / "b").write_text(text)
        found.add(kept.commit(["a", "b"]))
    assert len(found) == 6


@pytest.mark.parametrize(("rate", "name"), [("1gbit", "stepping-1gbit"), (ONE_HOST, ONE_HOST)])
@pytest.mark.hosts
def test_steps_of_two_ranks(tmp_path: Path, rate: str, name: str) -> None:
    command = [sys.executable, "-m", "benchmarks.ddp", "critics", "--quick", "--hosts", "2"]
    command += ["--rate", rate, "--task", "text", "--batch", "8", "--out", str(tmp_path)]
    command += ["--candidates", "gloo", "gloo+powersgd:1@2", "ringdist", "ringdist:auto"]
    command += ["ringdist:nonesuch"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    [path] = (tmp_path / "quick").glob(f"{name}-text-batch8-*.json")
    told = json.loads(path.read_text())
    names = ["gloo", "gloo+powersgd:1@2", "ringdist", "ringdist:auto"]
    assert list(told["candidates"]) == names
    assert told["candidates"]["ringdist:auto"]["codec"] in ("none", "bf16", "int8", "int4")
    assert all(len(each["seconds"]) == 4 for each in told["candidates"].values())
    assert "ringdist:nonesuch" in told["absent"]
    assert (tmp_path / "quick" / "critics.png").stat().st_size > 1000
    assert "compression helps in" in done.stdout


def test_a_prepared_heap_has_no_fresh_pages_also_for_other_threads() -> None:
    script = """
import resource, sys, threading
import torch
from benchmarks.ddp.memory import prepare_heap

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(3):
        torch.ones(2 << 20)  # 8 MiB: 2048 pages
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if not prepare_heap(64 << 20):
    print("no glibc", end="")
    sys.exit()
counts = [faults()]
thread = threading.Thread(target=lambda: counts.append(faults()))
thread.start()
thread.join()
print(max(counts), end="")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    if done.stdout == "no glibc":
        pytest.skip("needs glibc's mallopt")
    assert int(done.stdout) < 200


def test_steps_on_hosts_of_several_ranks() -> None:
    settings = Stepping("1gbit", "mlp5m", 32, ("gloo",), hosts=4, per_host=2, kind="steps")
    assert settings.name == "steps-2x2-1gbit-mlp5m-batch32"
    assert from_text(to_text(settings)) == settings
    text = steps_table.table(stepping({"gloo": 0.3, "ringdist": 0.15}))
    gloo, ours = text.splitlines()[1:]
    assert gloo.split()[-1] == "1"
    assert ours.split()[:2] == ["ringdist", str(len(NOISE))]
    assert "0.50 (" in ours


@pytest.mark.hosts
def test_a_few_steps_on_hosts_of_two_ranks(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.ddp", "steps", "--quick", "--batch", "8"]
    command += ["--out", str(tmp_path), "--candidates", "gloo", "ringdist"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 hosts of 2, 1 Gb/s, batch 8" in done.stdout
    [kept] = (tmp_path / "quick").glob("steps-2x2-1gbit-*.json")
    told = json.loads(kept.read_text())["candidates"]
    assert {text: len(found["seconds"]) for text, found in told.items()} == {
        "gloo": 4,
        "ringdist": 4,
    }
