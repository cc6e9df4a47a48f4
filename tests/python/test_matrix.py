"""The runner of `make matrix`, on fake tests: combinations, resuming, samples, crashes."""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.matrix import __main__ as cli  # noqa: E402
from tests.matrix import axes, results  # noqa: E402

pytestmark = pytest.mark.tools

FAKE = """
import os, time
import pytest

def log(name):
    with open(os.environ["FAKE_LOG"], "a") as file:
        print(name, os.environ.get("RINGDIST_ALGORITHM", "-"), file=file)

def test_passes():
    log("passes")

def test_fails():
    log("fails")
    assert os.environ.get("RINGDIST_ALGORITHM") != "ring", "the ring is wrong"

@pytest.mark.skip(reason="not today")
def test_skips():
    pass
"""
CRASH = "import os\ndef test_crashes():\n    os._exit(7)\n"
MANY = """
import time, pytest

@pytest.mark.parametrize("number", range(1000))
def test_sleeps(number):
    time.sleep(0.01)
"""


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Returns a folder with fake tests, which log their runs."""
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "build", prefix="fake_matrix_") as name:
        folder = Path(name)
        (folder / "test_fake.py").write_text(FAKE)
        monkeypatch.setenv("FAKE_LOG", str(folder / "log"))
        monkeypatch.setenv("RINGDIST_TRANSPORT", "of the shell")
        yield folder


def _run(folder: Path, *more: str, file: str = "test_fake.py") -> int:
    words = ["--out", str(folder / "out"), "--tests", str(folder / file)]
    others = [f"{axis.name}=default" for axis in axes.AXES if axis.name != "algorithm"]
    return cli.main([*words, "--only", *others, *more])


@pytest.mark.parametrize("shape", [(1,), (3,), (2, 3), (6, 2, 2), (3, 3, 3, 2), (1, 4, 1)])
def test_all_pairs_meet_in_few_configurations(shape: tuple[int, ...]):
    values = {f"a{i}": [str(v) for v in range(count)] for i, count in enumerate(shape)}
    chosen = axes.pairwise(values)
    for (a, of_a), (b, of_b) in itertools.combinations(values.items(), 2):
        for one, other in itertools.product(of_a, of_b):
            assert any(c[a] == one and c[b] == other for c in chosen), (a, one, b, other)
    largest = sorted(shape)[-2:]
    assert len(chosen) <= 2 * largest[0] * largest[-1]
    assert len(axes.every(values)) >= len(chosen)
    left = axes.pairwise(values, chosen[:1])
    assert chosen[0] not in left
    assert axes.pairwise(values, chosen) == []
    assert all(set(configuration) == set(values) for configuration in chosen)


def test_shared_tensors_meet_others_where_they_are_read_in_place():
    """Over UCX, or in segments of 4 KiB, sharing has no effect, so it does not count as a
    combination."""
    values = {axis.name: axis.values() for axis in axes.AXES}
    chosen = axes.pairwise(values, [axes.untouched()])
    for algorithm in values["algorithm"]:
        alone = {**axes.untouched(), "algorithm": algorithm, "shared_tensors": "1"}
        assert alone in chosen
    for axis in axes.AXES:
        for name in axis.idle_beside:  # its lack of effect is tested
            assert any(c[axis.name] and c[name] for c in chosen)
            assert values[name][0] == ""


def test_axes_are_settings_that_there_are():
    import torch_ringdist

    known = {name for name, *_ in torch_ringdist.info()["variables"]}
    for axis in axes.AXES:
        assert axis.variable in known or "TEST_" in axis.variable
        assert len(set(axis.values())) == len(axis.values()) >= 2
        assert axis.values()[0] == "", "the default comes first"


def test_failures_come_with_the_command_that_repeats_them(fake: Path, capfd):
    assert _run(fake, "algorithm=direct,ring") == 1
    out = capfd.readouterr().out
    assert "3 passed, 2 skipped, 1 failed" in out
    assert "FAILED (algorithm ring, transport default" in out
    assert "the ring is wrong" in out
    assert "  RINGDIST_ALGORITHM=ring .venv/bin/python -m pytest " in out
    assert "test_fake.py::test_fails" in out
    logged = sorted((fake / "log").read_text().splitlines())
    assert logged == ["fails direct", "fails ring", "passes direct", "passes ring"]


def test_goes_on_where_it_stopped(fake: Path, capfd):
    assert _run(fake, "algorithm=default", "--", "-k", "passes") == 0
    assert _run(fake, "algorithm=default") == 0
    assert (fake / "log").read_text().splitlines() == ["passes -", "fails -"]
    assert _run(fake, "algorithm=default", "--fresh") == 0
    assert (fake / "log").read_text().splitlines() == ["passes -", "fails -"] * 2
    assert "2 passed, 1 skipped, 0 failed" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("more", "said"),
    [([], "crashed while running"), (["--sample", "60s"], "pytest ended with status 7")],
)
def test_a_crash_is_a_failure(fake: Path, capfd, more: list[str], said: str):
    (fake / "test_crash.py").write_text(CRASH)
    assert _run(fake, "algorithm=default", *more, file="test_crash.py") == 1
    printed = capfd.readouterr()
    assert said in printed.out
    assert "test_crash.py::test_crashes" in printed.out


def test_nothing_passed_is_no_success(fake: Path):
    assert _run(fake, "algorithm=default", "--", "-k", "skips") == 1


def test_a_sample_ends_in_time_and_its_seed_repeats_it(fake: Path, capfd):
    (fake / "test_many.py").write_text(MANY)
    orders = []
    for seed in ("1", "1", "2"):
        arguments = ["algorithm=default", "--fresh", "--sample", "3s", "--seed", seed]
        assert _run(fake, *arguments, file="test_many.py") == 0
        (file,) = (fake / "out").rglob("*.jsonl")
        known = results.Results(fake / "out", axes.untouched())
        assert known.path == file
        orders.append(list(known.known())[:5])
        assert 5 <= len(known.known()) < 1000
    assert orders[0] == orders[1] != orders[2]
    assert "seed 2" in capfd.readouterr().out


def test_a_sample_has_as_many_configurations_as_its_time_allows(tmp_path: Path):
    chosen = axes.every({axis.name: axis.values() for axis in axes.AXES})

    def drawn(time: str, seed: str) -> list[axes.Configuration]:
        words = ["--sample", time, "--seed", seed, "--out", str(tmp_path)]
        return cli.draw(cli.parse_arguments(words), chosen)

    assert len(drawn("60s", "1")) == 2 and len(drawn("5s", "1")) == 1
    assert drawn("60s", "1") == drawn("60s", "1") != drawn("60s", "2")
    assert len(drawn("10h", "1")) == len(chosen)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "algorithm=x"], "--only: algorithm=x: expected one of default, ring"),
        (["--only", "colour=red"], "--only: 'colour': expected one of algorithm"),
        (["--sample", "4"], "'4': expected a time such as 90s, 4m or 1h"),
        (["--tests", "nowhere.py"], "--tests: nowhere.py: no such file"),
        (["--tests", "/dev/null"], "--tests: /dev/null: expected a file below"),
    ],
)
def test_wrong_arguments_are_named(words: list[str], said: str, capsys):
    with pytest.raises(SystemExit):
        cli.main(words)
    assert said in capsys.readouterr().err


def test_what_is_left_out_is_there():
    for pattern, reason in cli.UNREACHED.items():
        assert list((ROOT / "tests" / "python").glob(pattern)), pattern
        assert reason
