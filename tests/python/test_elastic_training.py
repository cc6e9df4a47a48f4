"""Ranks die, come and leave while examples/elastic_digits.py trains, without visible effect."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from support.digits import EPOCHS, course_of, newest_trained, script_of, trained
from support.job_key import key_variables, needs_tls
from support.launched import Course, Launched, Record


def test_sizes_four_three_two_three_four(tmp_path: Path, undisturbed_losses: list[float]):
    script = script_of(tmp_path, "--pause=0.1", epochs=EPOCHS)
    options = ["--nproc-per-node=4", "--max-restarts=0"]
    with Launched(tmp_path / "first", options, script) as job:
        os.kill(trained(job, tmp_path, 4)[1], signal.SIGKILL)
        os.kill(trained(job, tmp_path, 3)[0], signal.SIGKILL)
        trained(job, tmp_path, 2)
        one = ["--nproc-per-node=1", f"--rdzv={job.address}"]
        with Launched(tmp_path / "second", one, script) as second:
            trained(job, tmp_path, 3)
            with Launched(tmp_path / "third", one, script) as third:
                trained(job, tmp_path, 4)
                for each in (job, second, third):
                    each.hurry()
                assert job.end() == 0, job.output()
                assert (second.end(), third.end()) == (0, 0), second.output() + third.output()
    assert course_of(tmp_path, undisturbed_losses, EPOCHS).sizes == [4, 3, 2, 3, 4]


@pytest.mark.check
@pytest.mark.parametrize("has_key", [False, pytest.param(True, marks=needs_tls)])
def test_the_dead_are_started_again(tmp_path: Path, undisturbed_losses: list[float], has_key: bool):
    script = script_of(tmp_path, "--no-copy", epochs=EPOCHS)  # time for another worker to start
    key = key_variables(tmp_path, has_key)
    with Launched(tmp_path, ["--nproc-per-node=3"], script, key) as job:
        assert job.address.startswith("ringdist://") == has_key
        pids = trained(job, tmp_path, 3)
        before, _ = newest_trained(tmp_path)
        os.kill(pids[0], signal.SIGKILL)
        trained(job, tmp_path, 3, after=before)
        job.hurry()
        assert job.end() == 0, job.output()
        [ended] = job.events("worker_ended", status=-signal.SIGKILL)
        assert ended["again"]
        assert "newcomers wait" not in job.output(), "an arrival is no failure"
        assert [one for one in job.events("generation") if one["lost"]], job.output()
    # On a busy machine the newcomer may be there before the two have committed a step.
    assert course_of(tmp_path, undisturbed_losses, EPOCHS).sizes in ([3, 2, 3], [3])


def test_one_leaves_when_asked_to(tmp_path: Path, undisturbed_losses: list[float]):
    script = script_of(tmp_path, epochs=EPOCHS)
    with Launched(tmp_path, ["--nproc-per-node=3"], script) as job:
        pid = trained(job, tmp_path, 3)[1]
        os.kill(pid, signal.SIGTERM)
        trained(job, tmp_path, 2)
        job.hurry()
        assert job.end() == 0, job.output()
        [ended] = job.events("worker_ended", worker_pid=pid)
        assert (ended["status"], ended["again"]) == (128 + signal.SIGTERM, False)
        assert job.events("left", pid=pid)
        assert job.events("generation", size=2, lost=["rank 1 (left)"]), job.output()
        assert "died" not in job.output()
    assert course_of(tmp_path, undisturbed_losses, EPOCHS).sizes == [3, 2]


def test_all_are_asked_to_end_and_go_on_later(tmp_path: Path, undisturbed_losses: list[float]):
    script = script_of(tmp_path, f"--checkpoint={tmp_path / 'saved'}", "--resume", epochs=EPOCHS)
    with Launched(tmp_path / "first", ["--nproc-per-node=3"], script) as job:
        trained(job, tmp_path, 3)
        job.send(signal.SIGTERM)
        assert job.end() == 128 + signal.SIGTERM, job.output()
        assert job.events("saved"), job.output()
    with Launched(tmp_path / "second", ["--nproc-per-node=2"], script) as job:
        job.hurry()
        assert job.end() == 0, job.output()
    assert course_of(tmp_path, undisturbed_losses, EPOCHS).sizes == [3, 2]


def test_what_another_launch_began_does_not_count():
    def tried(what: str, time: float, rank: int, size: int) -> Record:
        place = {"step": 1, "epoch": 0, "generation": 0, "rank": rank, "size": size}
        indices = (10 * size + rank,) if what == "began" else ()
        return Record(10 * size + rank, time, what, indices=indices, loss=0, parameters="", **place)

    first = [tried("began", 1, rank, 3) for rank in range(3)]
    second = [tried("began", 2, rank, 2) for rank in range(2)]
    ended = [tried("committed", 3, rank, 2) for rank in range(2)]
    course = Course([*first, *second, *ended])
    assert not course.problems
    assert course.steps[0].indices == (20, 21)


def test_the_launcher_is_killed(tmp_path: Path, undisturbed_losses: list[float]):
    script = script_of(tmp_path, epochs=EPOCHS)
    with Launched(tmp_path, ["--nproc-per-node=3"], script) as job:
        pids = trained(job, tmp_path, 3)
        job.send(signal.SIGKILL)
        assert job.end() == -signal.SIGKILL
        os.kill(pids[2], signal.SIGKILL)
        job.hurry()
        deadline = time.monotonic() + 60
        while any(_lives(pid) for pid in pids.values()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert "accuracy" in job.output()
    assert course_of(tmp_path, undisturbed_losses, EPOCHS).sizes == [3, 2]


def _lives(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
