"""The store of a job does not answer, answers late, or comes back without its data."""

from __future__ import annotations

import argparse
import contextlib
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

import pytest
import torch.distributed as dist
from support.job_key import key_files, needs_tls, write_key
from support.launched import Launched, preloaded, python_path
from support.pool import free_port
from support.rank import poll
from support.store import write
from test_elastic_entry import settings
from test_elastic_entry import stores_open_in_their_own_time as stores_open_in_their_own_time

import torch_ringdist
from torch_ringdist import ArgumentError, _native
from torch_ringdist._launch import elastic_job, fixed_launcher
from torch_ringdist._launch.rendezvous_store import RendezvousStore
from torch_ringdist.elastic import _join_coordinator, _progress, _store

# With RINGDIST_KEY_FILE it holds a store of ringdist's own, else a TCPStore.
HOLDER = """
import sys
from torch_ringdist._served_store import serve_for_job
store = serve_for_job("127.0.0.1", int(sys.argv[1]))
print(store.port, flush=True)
sys.stdin.read()
"""


def hold(port: int = 0, key: str = "") -> tuple[preloaded.ForkedProcess, int]:
    """Starts a store in its own process. Returns the process and its port."""
    command = [sys.executable, "-c", HOLDER, str(port)]
    environment = {**os.environ, "PYTHONPATH": python_path(), "RINGDIST_KEY_FILE": key}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    holder = preloaded.ForkedProcess(command, env=environment, **pipes)
    assert holder.stdout is not None
    return holder, int(holder.stdout.readline())


@pytest.fixture
def held() -> Iterator[tuple[preloaded.ForkedProcess, int]]:
    holder, port = hold()
    yield holder, port
    holder.kill()
    holder.wait()


@pytest.fixture(params=["", pytest.param("job.key", marks=needs_tls)], ids=["tcp", "own"])
def held_by_key(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[preloaded.ForkedProcess, int, str]]:
    key = str(write_key(tmp_path / request.param)) if request.param else ""
    holder, port = hold(key=key)
    yield holder, port, key
    holder.kill()
    holder.wait()


def _stop(holder: preloaded.ForkedProcess) -> None:
    """Stops the process and waits until all its threads have stopped."""
    holder.send_signal(signal.SIGSTOP)
    tasks = Path(f"/proc/{holder.pid}/task")
    assert poll(lambda: all(") T " in (one / "stat").read_text() for one in tasks.iterdir()))


def test_a_store_that_does_not_answer(
    held: tuple[preloaded.ForkedProcess, int], monkeypatch: pytest.MonkeyPatch
):
    """Neither training nor a launcher waits for the store. Their updates reach it later."""
    holder, port = held
    monkeypatch.setattr(_store, "LIMIT", 4.0)
    entry = _join_coordinator.JoinCoordinator(settings(SimpleNamespace(port=port)))
    rendezvous_store = RendezvousStore(("127.0.0.1", port), "mine")
    assert (rendezvous_store.held_here, rendezvous_store.count(+1)) == (False, 1)
    _stop(holder)
    entry.word = "word"
    entry.go_on(3, 2, {"a": "b"})
    assert rendezvous_store.count(+1) == -1
    with pytest.raises(dist.DistNetworkError, match=r"127.0.0.1:\d+ has not answered"):
        entry.begin_training()
    holder.send_signal(signal.SIGCONT)
    store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    own = _store.open_store("127.0.0.1", port)
    size, seal = (_progress.key("mine", name) for name in ("size", "seal"))
    store.wait([size, seal], timedelta(seconds=60))
    assert (store.get(size), store.get(seal)) == (b"2", _progress.seal("word").encode())
    deadline = time.monotonic() + 60
    while (running := rendezvous_store.count(0)) < 0 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert running == 2, "the launcher's workers are counted when the store answers again"
    # An older generation, from a process that was left behind, changes nothing.
    entry.go_on(2, 5, {})
    entry.finish()
    assert store.get(size) == b"2" and _progress.progress_of(own, "mine") == _progress.FINISHED


@pytest.mark.timeout(300)
def test_a_fixed_launcher_ends_without_the_store(
    held: tuple[preloaded.ForkedProcess, int], tmp_path: Path
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
        assert job.end(180) == 3, job.output()  # a few requests, each of which ends at its limit
        assert "failed with status 3" in job.output()


# The script ends while its thread waits for the store, which answers while Python ends.
ENDING = """
import os, signal, sys, threading, time
from torch_ringdist.elastic._store import open_store

class Late:
    def __del__(self, kill=os.kill, sleep=time.sleep, go_on=signal.SIGCONT, pid=int(sys.argv[2])):
        kill(pid, go_on)
        sleep(1)

late = Late()
store = open_store("127.0.0.1", int(sys.argv[1]))
os.kill(int(sys.argv[2]), signal.SIGSTOP)
time.sleep(0.5)
threading.Thread(target=store.find, args=("key",), daemon=True).start()
time.sleep(0.5)
"""


def test_a_process_ends_while_its_thread_waits(held: tuple[preloaded.ForkedProcess, int]):
    """A thread that returns into an interpreter that has ended would abort it."""
    holder, port = held
    line = ["-c", ENDING, str(port), str(holder.pid)]
    done = preloaded.run(line, env={**os.environ, preloaded.FINALIZE: "1"}, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_silent_store_costs_no_more_with_each_request(
    held_by_key: tuple[preloaded.ForkedProcess, int, str],
):
    holder, port, key = held_by_key
    limit = timedelta(seconds=0.2)
    store = _native.load().BoundedStore(
        "127.0.0.1", port, limit, key_files(key), is_hosted=bool(key)
    )
    store.connect(timedelta(seconds=10))
    _stop(holder)

    def costs() -> tuple[int, int]:
        with pytest.raises(dist.DistNetworkError, match=r"has not answered for 0\.2 s"):
            store.find("key")
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    costs()  # the first client is abandoned
    first = [costs() for _ in range(3)]  # another one is being opened, perhaps late
    later = [costs() for _ in range(10)]
    for of in (0, 1):  # threads of earlier tests may end meanwhile
        assert max(one[of] for one in later) <= max(one[of] for one in first), (first, later)
    holder.send_signal(signal.SIGCONT)
    store.connect(timedelta(seconds=40))
    limit = timedelta(seconds=60)  # a busy machine may need longer than 0.2 s
    own = _native.load().BoundedStore("127.0.0.1", port, limit, key_files(key), is_hosted=bool(key))
    assert own.find("key") is None and own.add("key", 3) == 3 and own.find("key") == "3"


def test_who_joins_does_not_wait_for_a_store_that_is_silent(
    held: tuple[preloaded.ForkedProcess, int],
):
    holder, port = held
    _stop(holder)
    began = time.monotonic()
    with pytest.raises(dist.DistBackendError, match=r"join: .* has not answered for 1 s"):
        torch_ringdist.join(f"127.0.0.1:{port}", timeout=timedelta(seconds=1))
    assert time.monotonic() - began < 30, "it waits for as long as it was told"


def test_who_comes_waits_while_the_store_is_silent(
    held: tuple[preloaded.ForkedProcess, int], monkeypatch: pytest.MonkeyPatch
):
    """The wait is limited by the rejoin_timeout."""
    holder, port = held
    monkeypatch.setattr(_store, "LIMIT", 0.5)
    monkeypatch.setattr(torch_ringdist, "join", lambda *_, **__: (None, joined))
    joined = SimpleNamespace(generation=7)
    store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    write(store, _progress.key("mine", "progress"), "training another")
    entry = _join_coordinator.JoinCoordinator(settings(store, rejoin=timedelta(seconds=60)))
    late = _join_coordinator.JoinCoordinator(settings(store, rejoin=timedelta(seconds=1)))
    _stop(holder)
    with pytest.raises(dist.DistBackendError, match=r"has not answered for 0\.5 s"):
        late.enter({})
    timer = threading.Timer(2, holder.send_signal, (signal.SIGCONT,))
    timer.start()
    assert entry.enter({}) == 7
    timer.join()


def test_who_comes_does_not_wait_for_ever_for_what_the_store_has_lost(
    monkeypatch: pytest.MonkeyPatch,
):
    """No member admits the process. Its store was restarted, and no rank returns to it."""
    held = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    progress = _progress.key("mine", "progress")
    write(held, progress, "training another")

    def join(*_: object, **__: object) -> None:
        held.delete_key(progress)
        time.sleep(0.2)
        raise dist.DistBackendError("not let in")

    monkeypatch.setattr(torch_ringdist, "join", join)
    monkeypatch.setattr(_join_coordinator, "_SLICE", timedelta(seconds=0.1))
    entry = _join_coordinator.JoinCoordinator(settings(held, rejoin=timedelta(seconds=4)))
    with pytest.raises(dist.DistBackendError, match="the store has lost what job 'mine' had"):
        entry.enter({})


def test_a_request_whose_answer_was_lost_is_made_again(monkeypatch: pytest.MonkeyPatch):
    """A repeated request counts once, for generations and workers."""
    monkeypatch.setattr(_store, "_PAUSE", 0.01)
    held = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    entry = _join_coordinator.JoinCoordinator(settings(held))
    lost = iter([True, False, True, True, False, False, True])
    set_it = entry._set

    def lose(name: str, value: str) -> None:
        set_it(name, value)
        if next(lost, False):
            raise dist.DistNetworkError("no answer")

    monkeypatch.setattr(entry, "_set", lose)
    for generation in (1, 2):
        entry.go_on(generation, 2, {})
        assert poll(lambda: entry._writer._kept is None)
    assert _progress.generations_of(entry._store, "mine") == 2
    meetings = [RendezvousStore(("127.0.0.1", held.port), "mine") for _ in range(2)]
    assert [meetings[0].count(+2), meetings[1].count(+1), meetings[0].count(-1)] == [2, 1, 1]
    assert [one.count(0) for one in meetings] == [2, 2]
    for place in (1, 2):  # a store that was restarted has lost them
        held.delete_key(_progress.key("mine", f"workers/{place}"))
    assert [one.count(0) for one in (*reversed(meetings), meetings[0])] == [1, 2, 2]


def test_a_store_that_has_lost_all_is_told_again(monkeypatch: pytest.MonkeyPatch):
    """Its launcher was restarted. A later process must not create a second group."""
    monkeypatch.setattr(_join_coordinator, "_BEAT", 0.1)
    monkeypatch.setattr(_store, "_PAUSE", 0.1)
    holder, port = hold(free_port())
    entry = _join_coordinator.JoinCoordinator(
        settings(SimpleNamespace(port=port), rejoin=timedelta(seconds=60))
    )
    entry.begin_beats()
    entry.go_on(5, 2, {"a": "b"})
    try:
        for _ in range(3):
            assert poll(lambda: entry._writer._kept is None)
            time.sleep(0.5)  # a few heartbeats
            holder.kill()
            holder.wait()
            holder, _ = hold(port)
            store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
            progress, size = (_progress.key("mine", name) for name in ("progress", "size"))
            store.compare_set(progress, "", "forming another")
            store.wait([size], timedelta(seconds=60))
            deadline = time.monotonic() + 60
            while not store.get(progress).startswith(b"training") and time.monotonic() < deadline:
                time.sleep(0.05)
            assert store.get(progress) == f"training {entry._id}".encode()
    finally:
        entry.end_beats()
        holder.kill()
        holder.wait()


SLOW_NAMES = """
import socket, subprocess, sys
from torch_ringdist.elastic._store import open_store
holder = subprocess.Popen([sys.executable, "-c", sys.argv[1], "29500"], stdin=-1, stdout=-1)
holder.stdout.readline()
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as dns:
    dns.bind(("127.0.0.1", 53))  # and never answers
    assert open_store("127.0.0.1", 29500).find("key") is None
holder.kill()
"""


@pytest.mark.root
@pytest.mark.timeout(300)
def test_names_that_take_longer_than_a_connection(tmp_path: Path):
    """c10d's client resolves addresses before it is ready, and DNS may not answer."""
    names = tmp_path / "resolv.conf"
    names.write_text("nameserver 127.0.0.1\noptions timeout:6 attempts:2\n")
    inside = f'ip link set lo up && mount --bind {names} /etc/resolv.conf && exec "$@"'
    line = ["unshare", "--net", "--mount", "sh", "-c", inside, "sh", sys.executable, "-c"]
    done = subprocess.run([*line, SLOW_NAMES, HOLDER], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr


# Values of something else that writes to the store.
OTHERS = [
    b"\xff",
    "x",
    "\u00b2",
    "9" * 30,
    "-1",
    "9" * 10,
    "[" * 100_000,
    '{"a": 1}',
    "left",
]


@pytest.mark.parametrize("value", OTHERS, ids=lambda value: repr(value)[:20])
def test_values_of_something_else_end_no_launcher_and_no_rank(
    value: str | bytes, monkeypatch: pytest.MonkeyPatch
):
    held = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    names = ("progress", "seal", "size", "terms", "newest", "generations", "beat")
    rendezvous_store = RendezvousStore(("127.0.0.1", held.port), "mine")
    assert rendezvous_store.count(+1) == 1
    rendezvous_store.held_here = True
    own = _store.open_store("127.0.0.1", held.port)
    job = elastic_job.ElasticJob(
        argparse.Namespace(host_discovery_script=None), own, lambda share: pytest.fail(str(share))
    )
    monkeypatch.setattr(torch_ringdist, "join", lambda *_, **__: (None, joined))
    joined = SimpleNamespace(generation=7)
    entry = _join_coordinator.JoinCoordinator(settings(held, rejoin=timedelta(seconds=60)))
    entry._settings = settings(held, rejoin=timedelta(seconds=3))  # the store is open
    for name in (*names, "workers/1", "silent"):
        mine = "training another" if name == "progress" else value
        write(held, _progress.key("mine", name), mine)
        write(held, _progress.key(elastic_job.JOB, name), value)
        assert rendezvous_store.is_needed in (True, False)
        assert rendezvous_store.count(0) == 1
        job._look()
        with contextlib.suppress(dist.DistError, ArgumentError):
            entry.enter({})
    write(held, _progress.key("mine", "progress"), value)
    write(held, _progress.key("mine", "newest"), "4")  # a larger number would be a later generation
    entry.go_on(5, 2, {"a": "b"})
    assert poll(lambda: entry._writer._kept is None)
    assert _progress.progress_of(own, "mine") == _progress.TRAINING


@pytest.mark.parametrize("is_sealed", [False, pytest.param(True, marks=needs_tls)])
def test_counters_have_no_seal(tmp_path: Path, is_sealed: bool):
    """Any process may write a counter. Reading it must not end the store, as add() would."""
    key = str(write_key(tmp_path / "job.key")) if is_sealed else ""
    held = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    own = _native.load().BoundedStore("127.0.0.1", held.port, timedelta(seconds=10), key_files(key))
    assert own.count("counter") == 0
    assert own.add("counter", 3) == 3 and own.count("counter") == 3
    for value in OTHERS:
        write(held, "counter", value)
        assert own.count("counter") == (9_999_999_999 if value == "9" * 10 else 0), value
    own.set("text", "words")
    assert own.find("text") == "words" and (held.get("text") == b"words") != is_sealed


@pytest.mark.parametrize(
    ("text", "status"), [("0 done", 1), ("\u00b2 x", 1), ("256 x", 1), ("7 x", 7), ("x", 1)]
)
def test_a_failure_of_another_host_is_no_success(text: str, status: int):
    assert fixed_launcher._failure(text)[0] == status


@pytest.mark.parametrize(("value", "status"), [("0 \x1b[2Jdone\nx", 1), (b"\xff", 3)])
def test_a_fixed_launcher_does_not_trust_the_store(
    held: tuple[preloaded.ForkedProcess, int], tmp_path: Path, value: str | bytes, status: int
):
    _, port = held
    store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    write(store, fixed_launcher._FAILED, value)
    script = tmp_path / "script.py"
    script.write_text(f"import sys, time\ntime.sleep({2 if status == 3 else 60})\nsys.exit(3)")
    options = ["--world-size=2", "--first-rank=1", f"--rdzv=127.0.0.1:{port}"]
    with Launched(tmp_path, [*options, "--nproc-per-node=1"], [str(script)]) as job:
        assert job.end() == status, job.output()
    assert "Traceback" not in job.output() and "\x1b" not in job.output()
    if status == 1:
        assert "ringdist: 0 \\x1b[2Jdone\n    x: all end" in job.output(), job.output()
