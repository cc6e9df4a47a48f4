"""Ranks die at the worst moments, and the training must be the same."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from support.digits import EPOCHS, course_of, script_of, trained
from support.job_key import needs_tls, write_key
from support.launched import CHAOS, Launched

RANKS = 4
PEER_TIMEOUT, STOP = 5, 15.0  # seconds
SCRIPT = CHAOS / "dying.py"

# Deaths in the format of SCRIPT, and the number of ranks that then do the step.
AT_ONCE = {
    "10:step:1,2": 2,
    "20:step:0,3": 2,
    "30:step:0,1,2": 1,
    "40:committed:0": 3,
    "50:committed:2": 3,
}
ONE_AFTER_THE_OTHER = {
    "10:proposing:2:0": 2,
    "20:proposing:2:2": 2,
    "30:proposing:1:8": 2,
    "40:joining:1": 3,
    "50:giving:1": 3,
    "60:step:3": 3,  # before it, all ranks are awaited once more
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "deaths", [AT_ONCE, ONE_AFTER_THE_OTHER], ids=["at_once", "one_after_the_other"]
)
def test_deaths(tmp_path: Path, undisturbed_losses: list[float], deaths: dict[str, int]):
    marks = tmp_path / "marks"
    _, *rest = script_of(tmp_path)
    script = [str(SCRIPT), f"--marks={marks}", "--deaths", *deaths, "--", *rest]
    options = [f"--nproc-per-node={RANKS}", "--max-restarts=99"]
    with Launched(tmp_path / "job", options, script) as job:
        assert job.end(240) == 0, job.output()
    course = course_of(tmp_path, undisturbed_losses)
    sizes = {death: course.steps[int(death.split(":")[0]) - 1].size for death in deaths}
    assert sizes == deaths
    marked = {one.name for one in marks.iterdir()}
    expected = {"-".join(death.split(":")[:2]) for death in deaths}
    seconds = {f"{one}-second" for one in expected if one.endswith(("joining", "giving"))}
    assert marked == expected | seconds


@pytest.mark.parametrize("has_key", [False, pytest.param(True, marks=needs_tls)])
def test_one_that_was_stopped_comes_back(
    tmp_path: Path, undisturbed_losses: list[float], has_key: bool
):
    script = script_of(tmp_path, "--pause=0.1", epochs=EPOCHS)
    variables = {"RINGDIST_PEER_TIMEOUT": str(PEER_TIMEOUT)}
    if has_key:
        variables["RINGDIST_KEY_FILE"] = str(write_key(tmp_path / "job.key"))
    with Launched(tmp_path, [f"--nproc-per-node={RANKS}"], script, variables) as job:
        pid = trained(job, tmp_path, RANKS)[2]
        os.kill(pid, signal.SIGSTOP)
        trained(job, tmp_path, RANKS - 1)
        time.sleep(STOP - PEER_TIMEOUT)
        os.kill(pid, signal.SIGCONT)
        trained(job, tmp_path, RANKS)
        [ended] = job.events("worker_ended", worker_pid=pid)
        assert ended["again"] and ended["status"] == 1, ended
        assert "excluded in generation" in job.output()
        job.hurry()
        assert job.end() == 0, job.output()
    sizes = course_of(tmp_path, undisturbed_losses, EPOCHS).sizes
    # On a busy machine another rank may have been silent for too long before.
    assert sizes[-3:] == [RANKS, RANKS - 1, RANKS], sizes
