"""Ends of a process and their effect on the other ranks (docs/reference/failures.md).

By default, a subset of all combinations runs, in which each way meets each moment. With
RINGDIST_ENDINGS=all all of them run. RINGDIST_ENDINGS_REPEAT sets how often the launchers' reports
are tested.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.endings import EXIT_CODES, HARMLESS, MOMENTS, WAYS, Report, Scenario, Server
from support.launched import preloaded
from support.pool import _store, free_port, run_interpreters
from support.torchrun import torchrun

ALL = os.environ.get("RINGDIST_ENDINGS") == "all"
REPEAT = int(os.environ.get("RINGDIST_ENDINGS_REPEAT", "1"))
DIES = ("os._exit", "SIGKILL", "SIGTERM")


def _every() -> list[Scenario]:
    return [
        Scenario(size, way, moment, culprit, destroys)
        for size, way, moment, destroys in itertools.product((2, 16), WAYS, MOMENTS, (False, True))
        for culprit in (0, size - 1)
    ]


def _some() -> list[Scenario]:
    """Returns each way at each moment with 2 ranks, alternating root and destroying, and some
    with 16."""
    small = [
        Scenario(2, way, moment, n % 2, destroys=n % 5 == 4)
        for n, (way, moment) in enumerate(itertools.product(WAYS, MOMENTS))
    ]
    return [
        *small,
        Scenario(16, "os._exit", "first", 0),
        Scenario(16, "os._exit", "later", 15),
        Scenario(16, "exception", "later", 0),
        Scenario(16, "SIGKILL", "middle", 15),
        Scenario(16, "return", "first", 0, destroys=True),
    ]


# Data sent over a network may be lost if a process ends without exit handlers.
OVER_UCX = [
    Scenario(4, "return", "first", 0, transport="ucx"),
    Scenario(4, "exception", "later", 3, transport="ucx"),
    Scenario(4, "os._exit", "later", 0, transport="ucx"),
]


# Some ranks may still be looking for members. docs/reference/failures.md lists a death at that
# moment as a gap.
BEFORE_ALL_HAVE_MET = [
    Scenario(size, way, "created", culprit)
    for size, way, culprit in ((2, "exception", 1), (2, "return", 0), (4, "sys.exit", 3))
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


_prefixes = itertools.count()


@pytest.mark.parametrize(
    "scenario", [*(_every() if ALL else _some()), *OVER_UCX, *BEFORE_ALL_HAVE_MET], ids=str
)
def test_end(server: Server, scenario: Scenario):
    scenario = replace(scenario, port=_store().port, prefix=f"ends{next(_prefixes)}")
    reports, codes, printed = server.run(scenario)
    shown = "\n".join([str(codes), *map(str, reports), printed])
    assert len(reports) == scenario.size - 1, f"ranks hang:\n{shown}"
    assert None not in codes, f"ranks hang:\n{shown}"
    assert codes[scenario.culprit] == EXIT_CODES.get(scenario.way, 0), shown
    for report in reports:
        assert not report.wrong, shown
        if scenario.way in HARMLESS:
            assert report.finished == MOMENTS[scenario.moment] + 1 and not report.text, shown
        else:
            _names_the_culprit(scenario, report, shown)


def _names_the_culprit(scenario: Scenario, report: Report, shown: str) -> None:
    # Over ucx, an end without exit handlers may discard sent data.
    if scenario.transport != "ucx" or scenario.way not in DIES:
        assert report.finished == MOMENTS.get(scenario.moment, 0), shown
    assert "DistNetworkError" in report.kinds or not report.kinds, shown
    assert f"rank {scenario.culprit} (pid " in report.text, shown
    assert "Connection closed by peer" in report.text, shown
    if scenario.destroys:
        # In the middle of an op, a killed rank may die before its group's end is announced, but not
        # later.
        killed = scenario.way in DIES and scenario.moment == "middle"
        assert "destroyed the group" in report.text or (killed and "died" in report.text), shown
        return
    assert report.after_the_end, f"before the culprit had ended:\n{shown}"
    reason = "died" if scenario.way in DIES else "its process exited"
    assert reason in report.text, shown


# One rank makes a call that another does not make, and ends at once.
MISMATCH = """
import os, sys, torch, torch.distributed as dist
rank, size, port = map(int, sys.argv[1:])
store = dist.TCPStore("127.0.0.1", port, is_master=False)
dist.init_process_group("ringdist", store=store, rank=rank, world_size=size)
if rank == 0:
    dist.broadcast(torch.ones(4), 0)
    sys.exit(0)
try:
    dist.all_reduce(torch.ones(4))
except RuntimeError as error:
    print(error)
"""


def test_a_mismatch_is_told_though_its_caller_is_gone():
    _, second = run_interpreters(2, MISMATCH)
    assert "ranks disagree on op #1" in second.stdout, second
    assert "broadcast" in second.stdout and "rank 0" in second.stdout, second


# A root that holds the store sends and ends, while others may still be looking for members.
STORE = """
import os, sys, torch, torch.distributed as dist
rank, size, _ = map(int, sys.argv[1:])
port = int(os.environ["STORE_PORT"])
store = dist.TCPStore("127.0.0.1", port, is_master=rank == 0, wait_for_workers=False)
dist.init_process_group("ringdist", store=store, rank=rank, world_size=size)
tensor = torch.full((2,), float(rank))
dist.broadcast(tensor, 0)
assert tensor.eq(0).all()
os._exit(0)
"""


def test_the_store_may_end_after_the_first_op():
    for done in run_interpreters(4, STORE, STORE_PORT=str(free_port())):
        assert done.returncode == 0, done


CALLBACK = """
import sys, time, torch, torch.distributed as dist
from datetime import timedelta
rank, size, port = map(int, sys.argv[1:])
store = dist.TCPStore("127.0.0.1", port, is_master=False)
dist.init_process_group("ringdist", store=store, rank=rank, world_size=size)
dist.barrier()

def work(future):
    end = time.monotonic() + 2.5  # more than operations are waited for
    while time.monotonic() < end:
        time.sleep(0.001)
    print("worked", flush=True)

if rank == 1:
    store.wait(["callback"], timedelta(seconds=50))  # so that rank 0's is still in flight
pending = dist.all_reduce(torch.ones(1000), async_op=True)
if rank == 0:
    pending.get_future().then(work)
    store.set("callback", "")
pending.wait()
"""


def test_callbacks_are_waited_for():
    """Regression test: a thread must not take the GIL of an interpreter that ends, which aborted
    it."""
    first, second = run_interpreters(2, CALLBACK)
    assert (first.returncode, first.stdout) == (0, "worked\n"), first
    assert "callbacks of Futures still run" in first.stderr, first
    assert second.returncode == 0, second


FORKED = """
import os, sys, time, torch, torch.distributed as dist, torch_ringdist
port = int(sys.argv[3])
torch_ringdist.info()  # loads the module, in the parent
child = os.fork()
rank = 0 if child else 1
store = dist.TCPStore("127.0.0.1", port, is_master=False)
dist.init_process_group("ringdist", store=store, rank=rank, world_size=2)
dist.barrier()
tensor = torch.zeros(500_000)
if rank == 1:
    sent = dist.isend(tensor + 7, 0)
    sys.exit(0)
time.sleep(0.5)
dist.recv(tensor, 1)
print(tensor.eq(7).all().item(), os.waitpid(child, 0)[1], flush=True)
"""


@pytest.mark.check
def test_a_forked_process_ends_as_others_do():
    """Data that it has sent arrives, also if its parent had loaded the module."""
    [done] = run_interpreters(1, FORKED)
    assert (done.returncode, done.stdout) == (0, "True 0\n"), done


BODY = """
import sys, torch, torch.distributed as dist

def end(way):
    if way == "exception":
        raise ValueError("the culprit")
    sys.exit(3)

def work(rank, size, way):
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    if rank == size - 1:
        end(way)
    dist.all_reduce(tensor)
"""
SPAWN = (
    BODY
    + """
import torch.multiprocessing as mp

def main(rank, size, port, way):
    dist.init_process_group(
        "ringdist", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    work(rank, size, way)

if __name__ == "__main__":
    mp.spawn(main, (2, int(sys.argv[2]), sys.argv[1]), nprocs=2)
"""
)
TORCHRUN = (
    BODY
    + """
from torch.distributed.elastic.multiprocessing.errors import record

def main():
    dist.init_process_group("ringdist")
    work(dist.get_rank(), dist.get_world_size(), sys.argv[1])

(record(main) if sys.argv[2] == "record" else main)()
"""
)
# The last pair fails at times with any backend. @record writes no file for a SystemExit, so
# torchrun stamps that rank when it looks, and compares whole seconds.
LAUNCHES = [
    *(("spawn", "exception"), ("torchrun", "sys.exit"), ("record", "exception")),
    *((("spawn", "sys.exit"), ("torchrun", "exception"), ("record", "sys.exit")) if ALL else ()),
]


@pytest.mark.timeout(300 * REPEAT)
@pytest.mark.parametrize(("launcher", "way"), LAUNCHES)
def test_the_launcher_names_the_culprit(
    launcher: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(preloaded.FINALIZE, "1")
    script = tmp_path / "script.py"
    script.write_text(SPAWN if launcher == "spawn" else TORCHRUN)
    for _ in range(REPEAT):
        if launcher == "spawn":
            _spawned(script, way)
        else:
            _run(script, way, launcher)


# A launch is made up to this often. On a busy machine both ranks may have ended when the launcher
# looks, and it may name rank 0 then, which had seen the end of rank 1.
TRIES = 3
RIGHT_ORDER = "its process exited"


def _spawned(script: Path, way: str) -> None:
    for _ in range(TRIES):
        done = subprocess.run(
            [sys.executable, str(script), way, str(free_port())],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=110,
        )
        if "process 0 terminated" not in done.stderr.lower() or RIGHT_ORDER not in done.stderr:
            break
    last = (
        "ValueError: the culprit" if way == "exception" else "process 1 terminated with exit code 3"
    )
    assert last in done.stderr.strip().splitlines()[-1], done.stderr


# torchrun ends the remaining ranks with SIGTERM. If one is writing its error file then, torchrun
# itself fails on the half-written file and names no rank. That is no error of ringdist.
HALF_WRITTEN = "Failed to parse reply file"


def _run(script: Path, way: str, launcher: str) -> None:
    for _ in range(TRIES):
        done = torchrun(script, way, launcher, forked=True)
        cause = done.stderr.partition("Root Cause (first observed failure)")[2]
        was_late = re.search(r"rank +: 0 ", cause) and RIGHT_ORDER in done.stderr
        if HALF_WRITTEN not in done.stderr and not was_late:
            break
    assert re.search(r"rank +: 1 \(local_rank: 1\)", cause), done.stderr


# Registered before the module is loaded, like by a logger or a writer of checkpoints.
AT_EXIT = """
import atexit, os, sys, torch, torch.distributed as dist, torch_ringdist
rank, size, port = map(int, sys.argv[1:])
def all_reduce():
    dist.all_reduce(tensor := torch.ones(3))
    assert tensor.tolist() == [size] * 3
def end():
    {end}
    print("done", flush=True)
def begin():
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("ringdist", store=store, rank=rank, world_size=size)
atexit.register(end)
{begin}
"""


@pytest.mark.parametrize(
    ("end", "begin"),
    [
        ("dist.barrier()", "begin(), all_reduce()"),
        ("all_reduce(), dist.destroy_process_group()", "begin()"),
        ("all_reduce() if (group := dist.new_group()) else 0", "begin()"),
        ("begin(), all_reduce()", ""),
    ],
)
def test_exit_handlers_may_use_a_group(end: str, begin: str):
    for done in run_interpreters(2, AT_EXIT.format(end=end, begin=begin)):
        assert done.returncode == 0 and done.stdout == "done\n", done.stderr
        assert "Exception ignored" not in done.stderr, done.stderr
