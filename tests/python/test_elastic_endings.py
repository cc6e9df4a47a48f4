"""Ends of elastic training, and events in its last moments."""

from __future__ import annotations

import os
import re
import signal
import time
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist
from support.launched import LOOP, ROOT, Launched, read_events, run_loop
from support.rank import poll

from torch_ringdist.elastic import _progress


def _steps(folder: Path) -> int:
    """Returns the number of lines that were written."""
    return sum(len(file.read_text().splitlines()) for file in folder.glob("*.jsonl"))


def test_one_comes_when_others_have_returned(tmp_path: Path):
    owed, seen = tmp_path / "owed", tmp_path / "seen"
    script = ["--steps=20", f"--linger-until={seen}", f"--owed={owed}"]
    with run_loop(tmp_path / "job", "--nproc-per-node=3", script=script) as job:
        job.wait_for(lambda: _steps(owed) == 3 + 3 * 20)
        with run_loop(tmp_path / "more", f"--rdzv={job.address}", script=script) as more:
            # The ranks that have returned report that a newcomer waits. Rank 0 then returns.
            job.wait_for(lambda: job.events("error", steps=20))
            seen.touch()
            assert job.end() == 0, job.output()
            assert more.end() == 0, more.output()
            assert job.output().count("trained 20 steps, 4 ranks") == 6, job.output()


def test_one_dies_when_others_have_returned(tmp_path: Path):
    owed, killed = tmp_path / "owed", tmp_path / "killed"
    script = ["--steps=20", f"--linger-until={killed}", f"--owed={owed}"]
    with run_loop(tmp_path / "job", "--nproc-per-node=3", script=script) as job:
        job.wait_for(lambda: _steps(owed) == 3 + 3 * 20)
        os.kill(job.members()[0], signal.SIGKILL)
        killed.touch()
        assert job.end() == 0, job.output()
        assert job.output().count("trained 20 steps, 2 ranks") == 4, job.output()


FAILS_LATE = """
import os, sys
sys.path.insert(0, sys.argv.pop())
from tests.chaos import loop
loop.main()
sys.exit(3 if os.environ["LOCAL_RANK"] == "0" else 0)
"""


def test_a_failure_after_training_is_the_status(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(FAILS_LATE)
    words = [str(script), "--steps=20", str(ROOT)]
    with Launched(tmp_path / "job", ["--nproc-per-node=2", "--max-restarts=1"], words) as job:
        assert job.end() == 1, job.output()
        assert job.output().count("trained 20 steps, 2 ranks") >= 2, job.output()


def test_training_goes_on_without_its_logs(tmp_path: Path):
    with run_loop(tmp_path / "job", "--nproc-per-node=1", script=["--steps=1000"]) as job:
        job.wait_for_size(1)
        for log in (tmp_path / "job").glob("worker-*.log"):
            log.unlink()
        assert job.end() == 0, job.output()


def test_no_rank_outlives_its_shell(tmp_path: Path):
    script = tmp_path / "rank.sh"
    script.write_text(
        f"sleep 100 & echo $$ $! > {tmp_path}/pids.new\n"
        f"mv {tmp_path}/pids.new {tmp_path}/pids\nwait\n"
    )
    options = ["--nproc-per-node=1", "--max-restarts=0", "--no-python"]
    with Launched(tmp_path / "job", options, ["bash", str(script)]) as job:
        shell, sleep = job.wait_for(
            lambda: (tmp_path / "pids").exists() and (tmp_path / "pids").read_text().split()
        )
        os.kill(int(shell), signal.SIGKILL)
        assert job.end() == 128 + signal.SIGKILL, job.output()
        assert poll(
            lambda: (
                not Path(f"/proc/{sleep}").exists()
                or " Z " in Path(f"/proc/{sleep}/stat").read_text()
            )
        )


def test_one_comes_when_all_is_over(tmp_path: Path):
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    rendezvous = f"--rdzv=127.0.0.1:{store.port}"
    for name, said in (("first", "trained 5 steps, 1 ranks"), ("second", "nothing to join")):
        with run_loop(tmp_path / name, rendezvous, script=["--steps=5"]) as job:
            assert job.end() == 0, job.output()
            assert said in job.output(), job.output()


def test_somebody_else_says_that_training_has_finished(tmp_path: Path):
    script = ["--steps=1000000"]
    with run_loop(tmp_path / "job", "--nproc-per-node=2", script=script) as job:
        pids = job.wait_for_size(2)
        host, _, port = job.address.rpartition(":")
        store = dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False)
        progress = _progress.key("default", "progress")

        # The group writes "generations" just before it writes its progress for the last time.
        store.wait([_progress.key("default", "generations")], timedelta(seconds=60))
        job.wait_for(lambda: store.get(progress).startswith(b"training"))

        def stays() -> bool:
            """Returns True if the group, which writes its progress when it begins, has already
            done so."""
            store.set(progress, "finished")
            time.sleep(1)
            return bool(store.get(progress) == b"finished")

        job.wait_for(stays)
        with run_loop(tmp_path / "more", f"--rdzv={job.address}", script=script) as more:
            assert more.end() == 1, more.output()
            assert "not from the members of its last generation" in more.output(), more.output()
        os.kill(pids[1], signal.SIGKILL)
        job.wait_for_size(1)
        job.wait_for(lambda: store.get(progress) != b"finished")
        job.send(signal.SIGTERM)
        assert job.end() == 128 + signal.SIGTERM, job.output()


def test_hooks_in_python_hide_nothing(tmp_path: Path):
    owed = tmp_path / "owed"
    script = ["--steps=150", "--pause=0.2", "--hook", f"--owed={owed}"]
    with run_loop(tmp_path / "job", "--nproc-per-node=3", script=script) as job:
        pids = job.wait_for_size(3)
        job.wait_for(lambda: _steps(owed) > 20)
        os.kill(pids[1], signal.SIGKILL)
        job.hurry()
        assert job.end() == 0, job.output()
        assert job.output().count("trained 150 steps, 2 ranks") == 4, job.output()


def test_asked_to_end_before_the_first_step(tmp_path: Path):
    script = ["--min-ranks=3"]
    with run_loop(tmp_path, "--nproc-per-node=2", script=script) as job:
        job.wait_for(lambda: len(job.events("waiting")) >= 2)
        job.send(signal.SIGTERM)
        assert job.end() == 128 + signal.SIGTERM, job.output()
        assert not list(tmp_path.glob("checkpoint/step-*"))


def test_all_fail_and_nobody_is_started_again(tmp_path: Path):
    # A worker that is started again before the other one fails waits for that one's group.
    script = [LOOP, "--wrong=raise", "--rejoin-timeout=5"]
    options = ["--nproc-per-node=2", "--max-restarts=5"]
    with Launched(tmp_path, options, script) as job:
        assert job.end() == 1, job.output()
    running = []
    for one in read_events(tmp_path.glob("*events.jsonl")):
        change = {"worker_started": 1, "worker_ended": -1}.get(one["event"], 0)
        running.append(sum(running[-1:]) + change)
    over = running.index(0, running.index(2))
    assert not any(running[over:]), "a worker was started when none was left"


def test_all_die_with_no_room_left(tmp_path: Path):
    """Restarted workers wait for room, which never becomes free."""
    script = [LOOP, "--steps=1000000", "--rejoin-timeout=10"]
    options = ["--nproc-per-node=2", "--max-ranks=2", "--max-restarts=1"]
    with Launched(tmp_path, options, script) as job:
        pids = job.wait_for_size(2)
        os.kill(pids[0], signal.SIGSTOP)  # it does not notice the loss
        os.kill(pids[1], signal.SIGKILL)
        job.wait_for(lambda: job.events("worker_started", attempt=1))
        os.kill(pids[0], signal.SIGKILL)
        assert job.end() == 1, job.output()
        # The process looks for room first in the store, and then in the group, if it reached that.
        assert re.search("no sign of life for 10 s|waited for one to end", job.output())


def test_a_job_goes_on_with_resume(tmp_path: Path):
    script = [f"--checkpoint={tmp_path / 'saved'}", f"--owed={tmp_path / 'owed'}"]
    options = ["--nproc-per-node=1", "--resume"]  # the first job finds nothing
    with run_loop(tmp_path / "first", *options, script=[*script, "--steps=1000000"]) as job:
        job.wait_for(lambda: _steps(tmp_path / "owed") > 5)
        job.send(signal.SIGTERM)  # a shell may have started the tests with SIGINT ignored
        assert job.end() == 128 + signal.SIGTERM, job.output()
        assert job.events("nothing_saved"), job.output()
        [saved] = job.events("saved")
        assert "the same command with --resume" in job.output()
    steps = int(Path(saved["where"]).name.split("-")[1])
    assert steps > 0
    with run_loop(tmp_path / "other", "--nproc-per-node=1", script=[*script, "--steps=1"]) as job:
        assert job.end() == 0, job.output()
        assert job.events("ignored", where=saved["where"]), job.output()
    script.append(f"--steps={steps + 1}")
    with run_loop(tmp_path / "again", *options, script=script) as job:
        assert job.end() == 0, job.output()
        assert job.events("loaded", steps=steps), job.output()
        assert not job.events("ignored")
        assert job.events("generation", steps=steps)
