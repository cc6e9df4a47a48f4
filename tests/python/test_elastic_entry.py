"""How a process comes into an elastic group, with a made-up join()."""

from __future__ import annotations

import argparse
import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist
from support.launched import Launched

import torch_ringdist
from torch_ringdist._launch import arguments, launcher, meeting
from torch_ringdist._launch.meeting import Meeting
from torch_ringdist.elastic import _entry, _store
from torch_ringdist.elastic._settings import EVENTS, START_RANKS, Settings

REJOIN = timedelta(seconds=1)


def settings(store: Any) -> Settings:
    return Settings(
        host="127.0.0.1",
        port=store.port,
        min_ranks=1,
        start_ranks=1,
        max_ranks=2,
        rejoin_timeout=REJOIN,
        timeout=REJOIN,
        checkpoint=None,
        options=None,
        job="mine",
    )


def full_store(progress: str) -> dist.TCPStore:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    store.set(_entry._key("mine", "progress"), progress)
    store.set(_entry._key("mine", "size"), "2")
    return store


def test_who_waits_for_room_has_all_its_time_left_then(monkeypatch: pytest.MonkeyPatch):
    """What others die of at that moment may cost it the first try."""
    store = full_store("training another")
    monkeypatch.setattr(_entry, "_SLICE", timedelta(seconds=0.1))
    rank_0 = _entry.Entry(settings(store))
    rank_0.begin_beats()
    tries: list[float] = []

    def join(*_: Any, **__: Any) -> tuple[None, SimpleNamespace]:
        tries.append(time.monotonic())
        if len(tries) == 1:
            time.sleep(0.1)
            raise dist.DistBackendError("not let in within 0.1 s")
        return None, SimpleNamespace(generation=7)

    monkeypatch.setattr(torch_ringdist, "join", join)
    leave = threading.Timer(
        2 * REJOIN.total_seconds(), store.set, (_entry._key("mine", "size"), "1")
    )
    leave.start()
    began = time.monotonic()
    assert _entry.Entry(settings(store)).enter({}) == 7
    rank_0.end_beats()
    leave.join()
    assert len(tries) == 2 and tries[0] - began > REJOIN.total_seconds(), "it did not wait"


def test_only_the_last_members_say_that_training_has_finished():
    """Anybody can write to the store; a process that comes then takes nobody else's word."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    progress, seal = (_entry._key("mine", name) for name in ("progress", "seal"))
    entry = _entry.Entry(settings(store))
    for written in ("finished", "finished word"):
        store.set(progress, written)
        assert _entry.progress_of(store, "mine") == _entry.TRAINING
        with pytest.raises(dist.DistBackendError, match="not from the members of its last gener"):
            entry.enter({})
        store.set(seal, _entry._seal("another"))
    store.set(seal, _entry._seal("word"))
    assert _entry.progress_of(store, "mine") == _entry.FINISHED
    with pytest.raises(SystemExit) as ended:
        entry.enter({})
    assert ended.value.code == 0


def test_who_waits_for_room_gives_up_a_group_without_a_sign_of_life():
    store = full_store("training another")
    with pytest.raises(dist.DistBackendError, match="no sign of life for 1 s"):
        _entry.Entry(settings(store)).enter({})
    later = dataclasses.replace(settings(store), rejoin_timeout=timedelta(hours=1))
    with pytest.raises(dist.DistBackendError, match="no sign of life"):  # at once
        _entry.Entry(later).enter({})
    assert store.get(_entry._key("mine", "progress")) == b"training another"  # founds no second one


def test_a_full_group_whose_founder_is_lost_before_training_is_taken_over(
    monkeypatch: pytest.MonkeyPatch,
):
    store = full_store("forming another")
    monkeypatch.setattr(_entry, "_SLICE", timedelta(seconds=0.1))
    monkeypatch.setattr(_entry.Entry, "_found", lambda _: None)

    def join(*_: Any, **__: Any) -> None:
        time.sleep(0.1)
        raise dist.DistBackendError("not let in within 0.1 s")

    monkeypatch.setattr(torch_ringdist, "join", join)
    later = dataclasses.replace(settings(store), rejoin_timeout=timedelta(hours=1))
    assert _entry.Entry(later).enter({}) == 0


def test_a_launcher_holds_its_store_while_a_group_lives(monkeypatch: pytest.MonkeyPatch):
    held = Meeting(None, "mine")
    held._held.set(_entry._key("mine", "progress"), "training another")
    assert held.is_needed
    monkeypatch.setattr(meeting, "_SILENCE", 0.1)
    time.sleep(0.2)
    assert not held.is_needed
    held._held.add(_entry._key("mine", "beat"), 1)
    assert held.is_needed


@pytest.fixture
def held() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A store in a process of its own, and its port."""
    script = "import sys, torch.distributed as d; s = d.TCPStore('127.0.0.1', 0, is_master=True, "
    script += "wait_for_workers=False); print(s.port, flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    yield holder, int(holder.stdout.readline())
    holder.kill()
    holder.wait()


def _stop(holder: subprocess.Popen[bytes]) -> None:
    """Until all of its threads have."""
    holder.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, holder.pid, os.WSTOPPED)


def test_a_store_that_does_not_answer(
    held: tuple[subprocess.Popen[bytes], int], monkeypatch: pytest.MonkeyPatch
):
    """Neither training nor a launcher waits for it, and what they have to say comes to it later."""
    holder, port = held
    monkeypatch.setattr(_store, "LIMIT", 2.0)
    entry = _entry.Entry(settings(SimpleNamespace(port=port)))
    meeting = Meeting(("127.0.0.1", port), "mine")
    assert (meeting.held_here, meeting.count(+1)) == (False, 1)
    _stop(holder)
    entry.word = "word"
    entry.go_on(3, 2, {"a": "b"})
    assert meeting.count(+1) == -1
    with pytest.raises(dist.DistNetworkError, match=r"127.0.0.1:\d+ has failed, or has not answ"):
        entry.begin_training()
    holder.send_signal(signal.SIGCONT)
    store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    size, seal = (_entry._key("mine", name) for name in ("size", "seal"))
    store.wait([size, seal], timedelta(seconds=60))
    assert (store.get(size), store.get(seal)) == (b"2", _entry._seal("word").encode())
    deadline = time.monotonic() + 60
    while (running := meeting.count(0)) < 0 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert running == 2, "the launcher's workers are counted when the store answers again"
    # An older generation, of a process that others have left behind, changes nothing.
    entry.go_on(2, 5, {})
    entry.finish()
    assert store.get(size) == b"2" and _entry.progress_of(store, "mine") == _entry.FINISHED


@pytest.mark.timeout(300)
def test_a_fixed_launcher_ends_without_the_store(
    held: tuple[subprocess.Popen[bytes], int], tmp_path: Path
):
    holder, port = held
    wait = "import pathlib, sys, time\nwhile not pathlib.Path('now').exists(): time.sleep(0.1)\n"
    script = tmp_path / "script.py"
    script.write_text(f"{wait}sys.exit(3)")
    options = ["--world-size=2", "--first-rank=1", f"--rdzv=127.0.0.1:{port}"]
    with Launched(tmp_path, [*options, "--nproc-per-node=1"], [str(script)]) as job:
        job.wait_for(lambda: list(tmp_path.glob("worker-*.log")))
        _stop(holder)
        (tmp_path / "now").touch()
        assert job.end(180) == 3, job.output()  # a few requests, each of which ends by its limit
        assert "failed with status 3" in job.output()


@pytest.mark.parametrize("rendezvous", [True, False])
@pytest.mark.parametrize(
    ("options", "start"),
    [
        ([], 4),
        (["--min-ranks=2"], 4),
        (["--min-ranks=6"], 6),
        (["--max-ranks=3"], 3),
        (["--start-ranks=1"], 1),
    ],
)
def test_how_many_ranks_training_begins_with(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rendezvous: bool,
    options: list[str],
    start: int,
):
    monkeypatch.setenv(EVENTS, "")  # a Launcher sets it
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    options = [*options, f"--rdzv=127.0.0.1:{store.port}"] if rendezvous else options
    parser = argparse.ArgumentParser()
    arguments.add(parser)
    line = ["--nproc-per-node=4", f"--log-dir={tmp_path}", *options, "train.py"]
    environment = launcher.Launcher(parser.parse_args(line))._environment()
    assert environment[START_RANKS] == str(start)


def test_more_ranks_to_begin_with_than_the_most():
    parser = argparse.ArgumentParser()
    arguments.add(parser)
    args = parser.parse_args(["--max-ranks=2", "--start-ranks=3", "train.py"])
    with pytest.raises(ValueError, match="--max-ranks=2 is less than --start-ranks=3"):
        launcher.run(args)
