"""ringdist status of a job on two hosts: it names the rank that the others wait for, and its line.

`make test-status` runs it with more rounds, and prints how long the command takes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.status_job import LAST_HOST, RANKS, Job

from benchmarks.net import hosts as net  # support.status_job has added the repository to sys.path

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(240)]

SCRIPT = """
import ctypes, os, sys, time
import torch, torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 1
    def __getitem__(self, index):
        time.sleep(1000)

def load():
    for _ in DataLoader(Slow(), num_workers=1):  # line data
        pass

def spin():
    while True: pass  # line loop

def hold():
    inner, _ = os.pipe()
    ctypes.PyDLL(None).read(inner, ctypes.create_string_buffer(1), 1)  # line gil

how = {"loop": spin, "gil": hold, "data": load, "shape": lambda: time.sleep(3)}
torch.set_num_threads(1)
dist.init_process_group("ringdist")
for _ in range(3):
    dist.all_reduce(torch.ones(4))
elements = 7
if dist.get_rank() == 2:
    elements += sys.argv[1] == "shape"
    open(sys.argv[2], "w").write(str(os.getpid()))
    how.get(sys.argv[1], lambda: time.sleep(1000))()  # line skip
try:
    dist.all_reduce(torch.ones(elements))
except RuntimeError as error:
    print(error)
    time.sleep(1000)
"""

# It compares all ranks with the first one in the order of the folder.
TORCHFRTRACE = """
import os, sys
from torch.distributed.flight_recorder.fr_trace import main
walk = os.walk
os.walk = lambda folder: ((root, inner, sorted(files)) for root, inner, files in walk(folder))
main(sys.argv[1:])
"""


@contextlib.contextmanager
def _cut(hosts: net.Hosts, host: int) -> Iterator[None]:
    """Takes the link of a host away."""
    port = ("ip", "-n", hosts.switch, "link", "set", f"port{host}")
    net.call(*port, "down")
    yield
    net.call(*port, "up")


def _waits(job: dict[str, Any]) -> bool:
    return len(job["waiting"]) == RANKS - 1


@pytest.mark.parametrize("how", ["skip", "loop", "gil", "data"])
def test_the_line_of_a_rank_that_is_elsewhere(tmp_path: Path, how: str):
    with Job(tmp_path, how, SCRIPT) as job:
        pid = job.pid
        for host in range(LAST_HOST + 1):
            answer = job.until(host, _waits)
            [missing] = answer["missing"]
            assert (missing["rank"], missing["pid"], missing["state"]) == (2, pid, "elsewhere")
            assert "all_reduce" in answer["call"] and "7 elements" in answer["call"], answer
            assert answer["waiting"] == [0, 1, 3]
            assert missing["at"]["file"] == str(job.script), missing
            assert missing["at"]["line"] == job.line(), missing
            first, second = answer["diagnosis"]
            assert "ranks 0, 1, 3 wait in all_reduce #4" in first and "for rank 2" in first
            assert f"rank 2 (pid {pid} on " in second and f"trains.py:{job.line()}" in second
            job.measure(host)


@pytest.mark.parametrize("how", ["skip", "shape"])
def test_torchfrtrace_names_the_rank(tmp_path: Path, how: str):
    with Job(tmp_path, how, SCRIPT) as job:
        pid = job.pid
        folder = tmp_path / "fr"
        if how == "skip":
            job.until(0, _waits)
        else:
            job.until(0, lambda found: "failed" in {one["state"] for one in found["processes"]})
        job.status(0, f"--flight-recorder={folder}")
    told = subprocess.run(
        [sys.executable, "-c", TORCHFRTRACE, str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    text = told.stdout + told.stderr
    assert told.returncode == 0, text
    assert ("missing ranks: {2}" if how == "skip" else "Culprit rank 2") in text, text
    assert "sequence number: 4" in text, text
    assert pid


def test_a_rank_that_is_stopped(tmp_path: Path):
    with Job(tmp_path, "stopped", SCRIPT) as job:
        pid = job.pid
        job.until(0, _waits)
        os.kill(pid, signal.SIGSTOP)
        for host in range(LAST_HOST + 1):
            answer = job.until(host, lambda found: found["missing"][0]["state"] == "stopped")
            assert answer["missing"][0]["rank"] == 2
            assert f"kill -CONT {pid}" in answer["diagnosis"][1]
            job.measure(host)


def test_a_host_without_its_link(tmp_path: Path):
    with Job(tmp_path, "cut", SCRIPT) as job:
        job.until(0, _waits)
        with _cut(job.hosts, LAST_HOST):
            answer = job.until(
                0, lambda found: "silent" in {p["state"] for p in found["processes"]}
            )
            states = {one["rank"]: one["state"] for one in answer["processes"]}
            assert states[2] == states[3] == "silent", states
            assert [one["rank"] for one in answer["missing"]] == [2]
            assert "its host or its link may be down" in answer["diagnosis"][1]
            job.measure(0)
