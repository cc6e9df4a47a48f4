"""hvd.elastic: ranks are lost, leave and come, and training continues."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from pathlib import Path

import pytest
from support.digits import newest_trained, trained
from support.launched import CHAOS, EXAMPLES, Course, Launched, python_path, read

from torch_ringdist._launch.horovod_names import NAMES

IMAGES, EPOCHS = 1437, 20
STEPS = ["--steps=150", "--pause=0.3"]
LOOP = str(CHAOS / "horovod_loop.py")


def _loop(folder: Path, options: list[str], *script: str) -> Launched:
    """Runs tests/chaos/horovod_loop.py without restarts."""
    path = os.pathsep.join([python_path(), NAMES])
    options = ["--max-restarts=0", *options]
    return Launched(folder, options, [LOOP, *script], {"PYTHONPATH": path})


def _entered(job: Launched) -> list[tuple[int, ...]]:
    """Returns for each entry of the training function: rank, size, step, ranks of the set,
    process id."""
    lines = re.findall(r"^entered (\d+) (\d+) (\d+) (\d+|None) (\d+)$", job.output(), re.MULTILINE)
    return [tuple(int(one) if one != "None" else 0 for one in line) for line in lines]


def _members(job: Launched, size: int) -> dict[int, int]:
    """Waits until this many ranks have entered. Returns process ids by rank."""

    def entered() -> dict[int, int]:
        return {rank: pid for rank, of, _, _, pid in _entered(job) if of == size}

    return job.wait_for(lambda: len(found := entered()) == size and found)


def _done(job: Launched) -> list[tuple[int, int]]:
    """Returns rank and size of all that have ended, where each of 150 steps has added 1."""
    lines = re.findall(r"^done (\d+) (\d+) 150 150\.0$", job.output(), re.MULTILINE)
    return sorted((int(rank), int(size)) for rank, size in lines)


def _check_images(course: Course) -> None:
    """Checks that each image is in one step that counts per epoch. In the last step of an epoch
    some may repeat, so that all ranks have equally many."""
    assert not course.problems, "\n".join(course.problems)
    for epoch in range(EPOCHS):
        steps = [one for one in course.steps if one.epoch == epoch]
        taken = Counter(at for one in steps for at in one.indices)
        assert set(taken) == set(range(IMAGES)), f"epoch {epoch}"
        extra = sum(taken.values()) - IMAGES
        assert extra < steps[-1].size, f"epoch {epoch}: {extra} too many"
        before_the_last = Counter(at for one in steps[:-1] for at in one.indices)
        assert set(before_the_last.values()) <= {1}, f"epoch {epoch}"


def test_digits_while_ranks_die_and_come(tmp_path: Path):
    script = [str(EXAMPLES / "horovod_elastic_digits.py"), f"--log={tmp_path / 'steps'}"]
    script += [f"--epochs={EPOCHS}", "--pause=0.1"]
    options = ["--nproc-per-node=3", "--min-ranks=3"]
    with Launched(tmp_path / "first", options, script) as job:
        first = trained(job, tmp_path, 3)
        os.kill(first[1], signal.SIGKILL)
        # Two are too few, so they wait for a replacement.
        job.wait_for(lambda: job.events("waiting", size=2))
        job.wait_for(lambda: first[1] not in job.members().values() and len(job.members()) == 3)
        one_more = [f"--rdzv={job.address}", "--min-ranks=3"]
        with Launched(tmp_path / "second", one_more, script) as second:
            trained(job, tmp_path, 4)
            before, _ = newest_trained(tmp_path)
            os.kill(first[0], signal.SIGKILL)
            job.wait_for(lambda: newest_trained(tmp_path)[0] > before)
            for each in (job, second):
                each.hurry()
            assert job.end() == 0, job.output()
            assert second.end() == 0, second.output()
        starts = job.events("worker_started")
        assert len(starts) == 5, "of three ranks, of which two were killed"
        killed = [one["worker_pid"] for one in job.events("worker_ended", again=True)]
        assert killed == [first[1], first[0]]
        lost = {one for event in job.events("generation") for one in event["lost"]}
        assert {"rank 1", "rank 0"} <= {one.partition(" (")[0] for one in lost}, lost
    records = read(tmp_path / "steps")
    course = Course(records)
    _check_images(course)
    # On a busy machine the newcomer may be there before the three have committed a step.
    assert course.sizes[:3] in ([3, 4, 3], [3, 4]), course.sizes
    survivor = {one.step for one in records if one.pid == first[2] and one.what == "committed"}
    assert survivor >= {one.number for one in course.steps}, "it has lived through all of it"
    found = re.search(r"accuracy (0\.\d+|1\.0+) after", job.output() + second.output())
    assert found and float(found[1]) >= 0.97, found


def test_digits_with_a_codec(tmp_path: Path):
    script = [str(EXAMPLES / "horovod_elastic_digits.py"), f"--log={tmp_path / 'steps'}"]
    script += ["--epochs=12", "--pause=0.1", "--codec=int4"]
    with Launched(tmp_path, ["--nproc-per-node=3", "--min-ranks=2"], script) as job:
        first = trained(job, tmp_path, 3)
        os.kill(first[1], signal.SIGKILL)
        job.wait_for(lambda: first[1] not in job.members().values() and len(job.members()) == 3)
        trained(job, tmp_path, 3)
        job.hurry()
        assert job.end() == 0, job.output()
        assert len(job.events("worker_started")) == 4
    assert Course(read(tmp_path / "steps")).sizes[-1] == 3
    found = re.search(r"accuracy (0\.\d+|1\.0+) after", job.output())
    assert found and float(found[1]) >= 0.95, found


def test_the_oldest_is_rank_0_and_sets_are_made_anew(tmp_path: Path):
    with _loop(tmp_path, ["--nproc-per-node=4"], *STEPS) as job:
        four = _members(job, 4)
        os.kill(four[0], signal.SIGKILL)
        three = _members(job, 3)
        assert [three[rank] for rank in range(3)] == [four[1], four[2], four[3]]
        os.kill(three[1], signal.SIGTERM)  # leaves when its step is committed
        two = _members(job, 2)
        assert [two[rank] for rank in range(2)] == [three[0], three[2]]
        job.hurry()
        assert job.end() == 0, job.output()
        [left] = job.events("left")
        assert left["pid"] == three[1]
        steps = [(size, step) for _, size, step, _, _ in _entered(job)]
        for size in (4, 3, 2):
            assert len({step for of, step in steps if of == size}) == 1, "all go on from there"
        assert {members for _, _, _, members, _ in _entered(job)} == {2}
        assert _done(job) == [(0, 2), (1, 2)], job.output()


def test_a_state_of_the_users_own(tmp_path: Path):
    with _loop(tmp_path, ["--nproc-per-node=3"], *STEPS, "--own-state") as job:
        os.kill(_members(job, 3)[1], signal.SIGKILL)
        job.hurry()
        assert job.end() == 0, job.output()
        assert _done(job) == [(0, 2), (1, 2)], job.output()


def test_a_set_without_all_of_its_ranks_is_not_there(tmp_path: Path):
    with _loop(tmp_path, ["--nproc-per-node=2"], *STEPS) as job:
        two = _members(job, 2)
        os.kill(two[0], signal.SIGKILL)
        assert _members(job, 1) == {0: two[1]}
        job.hurry()
        assert job.end() == 0, job.output()
        assert [members for _, size, _, members, _ in _entered(job) if size == 1] == [0]
        assert _done(job) == [(0, 1)], job.output()


def test_ranks_that_disagree_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # A worker that is started again before the other one fails waits for that one's group.
    monkeypatch.setenv("HOROVOD_ELASTIC_TIMEOUT", "10")
    options = ["--nproc-per-node=2", "--max-restarts=1"]
    with _loop(tmp_path, options, "--fail-at=5") as job:
        assert job.end() == 1, job.output()
        assert "rank 1 called all_reduce (float32[2], AVG, on cpu)" in job.output(), job.output()
        assert {step for _, _, step, _, _ in _entered(job)} == {0, 5}
