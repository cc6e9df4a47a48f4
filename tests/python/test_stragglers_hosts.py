"""Ranks that are late, and slow links, on several hosts: what `ringdist status` names, and when.

`make test-status` has all causes, and ten seeds.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.status_job import LAST_HOST, ROUNDS, Job

from benchmarks.net import hosts as net  # support.status_job has added the repository to sys.path

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(240)]

# Rank 2 is late in a third of its steps.
LATE_SCRIPT = """
import mmap, os, random, sys, threading, time
import torch, torch.distributed as dist

how, late = sys.argv[1], 0.03
torch.set_num_threads(1)
dist.init_process_group("ringdist")
rank = dist.get_rank()
pair = dist.new_group([0, 2])
if rank == 2 and how == "busy":
    core = min(os.sched_getaffinity(0))
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), {core})
    for _ in range(2):
        if os.fork() == 0:
            parent = os.getppid()
            while os.getppid() == parent: pass
            os._exit(0)
if rank == 2 and how == "faults":
    file = os.open(sys.argv[2] + ".data", os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, 64 << 20)
    for _ in range(64):
        os.write(file, os.urandom(1 << 20))
    os.fsync(file)
    memory = mmap.mmap(file, 64 << 20, prot=mmap.PROT_READ)
    memory.madvise(mmap.MADV_RANDOM)

def compute(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until: pass

def fault():
    memory.madvise(mmap.MADV_DONTNEED)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    until, page = time.time() + late, 0
    while time.time() < until:
        page += 7919
        memory[page * 4096 % len(memory)]

waits = {
    "idle": lambda: time.sleep(late),
    "computes": lambda: compute(late),
    "busy": lambda: compute(late / 3),
    "faults": fault,
    "group": lambda: dist.recv(torch.zeros(1), src=0, group=pair),
    "stop": lambda: None,
}
chance = random.Random(os.environ.get("STATUS_SEED", "1"))  # the same on all ranks
if rank == 2:
    open(sys.argv[2], "w").write(str(os.getpid()))
while True:
    is_late = how == "busy" or chance.random() < 0.3
    if how == "group" and rank == 0 and is_late:
        send = lambda: dist.send(torch.ones(1), dst=2, group=pair)
        threading.Timer(2 * late, send).start()
    time.sleep(0.03)
    if rank == 2 and is_late:
        waits[how]()
    dist.all_reduce(torch.ones(1000))
    dist.all_reduce(torch.ones(1))
"""
CAUSES = {
    "idle": "idle",
    "computes": "computes",
    "busy": "descheduled",
    "faults": "major_faults",
    "group": "other_group",
    "stop": "stopped",
}


@contextlib.contextmanager
def _stopped_often(pid: int) -> Iterator[None]:
    """Stops a process for 80 ms again and again."""
    stops = f"""
import os, signal, time
while True:
    time.sleep(0.15)
    os.kill({pid}, signal.SIGSTOP)
    time.sleep(0.08)
    os.kill({pid}, signal.SIGCONT)
"""
    stopper = subprocess.Popen([sys.executable, "-c", stops])
    try:
        yield
    finally:
        stopper.kill()
        stopper.wait()


@pytest.mark.parametrize("how", CAUSES if ROUNDS > 1 else ["idle"])
def test_a_straggler_and_why_it_is_late(tmp_path: Path, how: str):
    with Job(tmp_path, how, LATE_SCRIPT) as job:
        pid = job.pid
        with _stopped_often(pid) if how == "stop" else contextlib.nullcontext():
            began = time.monotonic()
            answer = job.until(LAST_HOST, lambda one: bool(one["stragglers"]))
            print(f"\n{how}: named after {time.monotonic() - began:.1f} s")
        [one] = answer["stragglers"]
        assert (one["rank"], one["cause"]) == (2, CAUSES[how]), one["text"]
        assert f"(pid {pid} on host " in one["text"]


@pytest.mark.parametrize("run", range(ROUNDS if ROUNDS > 1 else 0))
def test_it_is_named_in_each_run(tmp_path: Path, run: int, monkeypatch: pytest.MonkeyPatch):
    seed = str(random.randrange(1 << 30))
    print(f"\nrun {run}: STATUS_SEED={seed}")
    monkeypatch.setenv("STATUS_SEED", seed)
    with Job(tmp_path, "idle", LATE_SCRIPT) as job:
        _ = job.pid
        began = time.monotonic()
        [one] = job.until(LAST_HOST, lambda one: bool(one["stragglers"]))["stragglers"]
        seconds = time.monotonic() - began
        print(f"named after {seconds:.1f} s")
        assert (one["rank"], one["cause"]) == (2, "idle") and seconds <= 20, one["text"]


# Three ranks on three hosts, in a ring.
RING_SCRIPT = """
import torch, torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("ringdist")
while True:
    dist.all_reduce(torch.ones(1 << 21))
"""


def _slow_down(hosts: net.Hosts, host: int, both_ways: bool) -> None:
    """Limits what a host sends to 300 Mbit/s, and what it receives if `both_ways`."""
    ends = [(hosts.enter(host), net.INTERFACE)]
    if both_ways:
        ends.append((["ip", "netns", "exec", hosts.switch], f"port{host}"))
    for enter, interface in ends:
        queue = ("qdisc", "replace", "dev", interface, "root", "tbf", "rate", "300mbit")
        net.call(*enter, "tc", *queue, *net.SHAPER.split())


@pytest.mark.parametrize("slow", ["host", "link", "none"] if ROUNDS > 1 else ["host"])
def test_a_slow_link(tmp_path: Path, slow: str):
    with Job(tmp_path, slow, RING_SCRIPT, hosts=3, ranks=3) as job:
        job.until(0, lambda one: any(found["state"] == "runs" for found in one["processes"]))
        if slow == "none":
            time.sleep(60)
            assert job.status(0)["slow_links"] == []
            return
        _slow_down(job.hosts, 1, both_ways=slow == "host")
        began = time.monotonic()
        answer = job.until(2, lambda one: bool(one["slow_links"]))
        print(f"\n{slow}: named after {time.monotonic() - began:.1f} s")
        [one] = answer["slow_links"]
        end = "" if slow == "host" else job.hosts.address(2)
        assert (one["address"], one["to_address"]) == (job.hosts.address(1), end), one["text"]
        assert 20e6 < one["rate"] < 40e6 < one["others"], one["text"]
