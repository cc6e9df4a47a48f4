"""Ranks die, come and leave while examples/elastic_digits.py trains: nothing of that shows."""

from __future__ import annotations

import os
import signal
import sys
import time
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.chaos.launched import EXAMPLES, Launched
from tests.chaos.records import Course, read

IMAGES = 1437
STEPS_OF_EPOCH = 15  # of 96 images
EPOCHS, SHORT = 20, 5
SCRIPT = [str(EXAMPLES / "elastic_digits.py"), "--no-progress"]
TOLERANCE = 1e-6  # the example computes in fp64


@cache
def _losses(folder: Path) -> list[float]:
    """Of a run of one rank in which nothing happens."""
    script = [*SCRIPT, f"--log={folder / 'steps'}", f"--epochs={EPOCHS}"]
    with Launched(folder, ["--nproc-per-node=1"], script) as job:
        assert job.end() == 0, job.output()
    course = Course(read(folder / "steps"))
    course.check_epochs(IMAGES, EPOCHS)
    assert not course.problems, course.problems
    return [one.loss for one in course.steps]


@pytest.fixture(scope="module")
def losses(tmp_path_factory) -> list[float]:
    return _losses(tmp_path_factory.mktemp("undisturbed"))


def _course(folder: Path, losses: list[float], epochs: int = SHORT) -> Course:
    """Of what was trained; nothing is wrong with it."""
    course = Course(read(folder / "steps"))
    course.check_epochs(IMAGES, epochs)
    course.check_losses(losses[: epochs * STEPS_OF_EPOCH], TOLERANCE)
    assert not course.problems, "\n".join(course.problems)
    return course


def _trained(job: Launched, folder: Path, size: int) -> dict[int, int]:
    """Once so many ranks have trained a step together; their process ids by rank."""

    def last() -> bool:
        committed = [one for one in read(folder / "steps") if one.what == "committed"]
        return bool(committed) and committed[-1].size == size

    job.wait_for(last)
    return job.members()


def _script(folder: Path, *more: str, epochs: int = SHORT) -> list[str]:
    return [*SCRIPT, f"--log={folder / 'steps'}", f"--epochs={epochs}", "--pause=0.05", *more]


def test_sizes_four_three_two_three_four(tmp_path: Path, losses: list[float]):
    script = _script(tmp_path, epochs=EPOCHS)
    options = ["--nproc-per-node=4", "--max-restarts=0"]
    with Launched(tmp_path / "first", options, script) as job:
        os.kill(_trained(job, tmp_path, 4)[1], signal.SIGKILL)
        os.kill(_trained(job, tmp_path, 3)[0], signal.SIGKILL)
        _trained(job, tmp_path, 2)
        one = ["--nproc-per-node=1", f"--rdzv={job.address}"]
        with Launched(tmp_path / "second", one, script) as second:
            _trained(job, tmp_path, 3)
            with Launched(tmp_path / "third", one, script) as third:
                assert job.end() == 0, job.output()
                assert (second.end(), third.end()) == (0, 0), second.output() + third.output()
    assert _course(tmp_path, losses, EPOCHS).sizes == [4, 3, 2, 3, 4]


def test_the_dead_are_started_again(tmp_path: Path, losses: list[float]):
    script = _script(tmp_path, "--no-copy", epochs=EPOCHS)  # time for another one to start
    with Launched(tmp_path, ["--nproc-per-node=3"], script) as job:
        os.kill(_trained(job, tmp_path, 3)[0], signal.SIGKILL)
        _trained(job, tmp_path, 2)
        assert job.end() == 0, job.output()
        [ended] = job.events("worker_ended", status=-signal.SIGKILL)
        assert ended["again"]
    assert _course(tmp_path, losses, EPOCHS).sizes == [3, 2, 3]


def test_one_leaves_when_asked_to(tmp_path: Path, losses: list[float]):
    with Launched(tmp_path, ["--nproc-per-node=3"], _script(tmp_path)) as job:
        pid = _trained(job, tmp_path, 3)[1]
        os.kill(pid, signal.SIGTERM)
        assert job.end() == 0, job.output()
        [ended] = job.events("worker_ended", worker_pid=pid)
        assert (ended["status"], ended["again"]) == (128 + signal.SIGTERM, False)
        assert job.events("left", pid=pid)
    assert _course(tmp_path, losses).sizes == [3, 2]


def test_all_are_asked_to_end_and_go_on_later(tmp_path: Path, losses: list[float]):
    script = _script(tmp_path, f"--checkpoint={tmp_path / 'saved'}", "--resume")
    with Launched(tmp_path / "first", ["--nproc-per-node=3"], script) as job:
        _trained(job, tmp_path, 3)
        job.send(signal.SIGTERM)
        assert job.end() == 128 + signal.SIGTERM, job.output()
        assert job.events("saved"), job.output()
    with Launched(tmp_path / "second", ["--nproc-per-node=2"], script) as job:
        assert job.end() == 0, job.output()
    assert _course(tmp_path, losses).sizes == [3, 2]


def test_the_launcher_is_killed(tmp_path: Path, losses: list[float]):
    with Launched(tmp_path, ["--nproc-per-node=3"], _script(tmp_path)) as job:
        pids = _trained(job, tmp_path, 3)
        job.send(signal.SIGKILL)
        assert job.end() == -signal.SIGKILL
        os.kill(pids[2], signal.SIGKILL)
        deadline = time.monotonic() + 60
        while any(_lives(pid) for pid in pids.values()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert "accuracy" in job.output()
    assert _course(tmp_path, losses).sizes == [3, 2]


def _lives(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
