"""ringdist status of a job on two hosts: it names the rank that the others wait for, and its line.

`make test-status` runs it with more rounds, and prints how long the command takes.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.launched import preloaded

from benchmarks.net import hosts as net  # support.launched has added the repository to sys.path

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(240)]
RANKS, PER_HOST = 4, 2
LAST_HOST = RANKS // PER_HOST - 1
ROUNDS = int(os.environ.get("STATUS_ROUNDS", "1"))

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
chance = random.Random(20261201)  # the same on all ranks
if rank == 2:
    open(sys.argv[2], "w").write(str(os.getpid()))
while True:
    is_late = how == "busy" or chance.random() < 0.3
    if how == "group" and rank == 0 and is_late:
        send = lambda: dist.send(torch.ones(1), dst=2, group=pair)
        threading.Timer(2 * late, send).start()
    time.sleep(0.01)
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

# It compares all ranks with the first one in the order of the folder.
TORCHFRTRACE = """
import os, sys
from torch.distributed.flight_recorder.fr_trace import main
walk = os.walk
os.walk = lambda folder: ((root, inner, sorted(files)) for root, inner, files in walk(folder))
main(sys.argv[1:])
"""


class Job:
    """Four ranks on two hosts. Rank 2, which is on the second one, does something else."""

    def __init__(self, folder: Path, how: str, script: str = SCRIPT) -> None:
        self.script, self.mark = folder / "trains.py", folder / "pid"
        self.script.write_text(script)
        self.hosts = net.Hosts(RANKS // PER_HOST, "1gbit")
        self.how = how

    def __enter__(self) -> Job:
        self.hosts.__enter__()
        words = [str(self.script), self.how, str(self.mark)]
        self.ranks = [self._start(rank, words) for rank in range(RANKS)]
        return self

    def __exit__(self, *error: Any) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)
        for one in self.ranks:
            one.kill()
        self.hosts.__exit__(*error)

    def _start(self, rank: int, words: list[str]) -> preloaded.ForkedProcess:
        variables = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(RANKS),
            "LOCAL_RANK": str(rank % PER_HOST),
            "MASTER_ADDR": self.hosts.address(0),
            "MASTER_PORT": "29500",  # the namespaces are private
            "OMP_NUM_THREADS": "1",
        }
        command = [*self.hosts.enter(rank // PER_HOST), sys.executable, *words]
        return preloaded.ForkedProcess(command, env=variables)

    @property
    def pid(self) -> int:
        """Returns the process of rank 2, once it has left the others alone."""
        return int(_wait(lambda: self.mark.exists() and self.mark.read_text()))

    def line(self) -> int:
        """Returns the number of the line at which rank 2 is."""
        lines = SCRIPT.splitlines()
        return 1 + next(i for i, one in enumerate(lines) if one.endswith(f"# line {self.how}"))

    def status(self, host: int, *options: str) -> dict[str, Any]:
        """Returns what `status --json` prints on a host about the only job there."""
        command = [*self.hosts.enter(host), sys.executable, "-m", "torch_ringdist", "status"]
        command += options
        folder = Path(__file__).resolve().parents[2]
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        done = subprocess.run(
            [*command, "--json"], capture_output=True, text=True, timeout=60, env=environment
        )
        assert done.returncode == 0, done.stderr
        [job] = json.loads(done.stdout)["jobs"]
        return job

    def until(self, host: int, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Repeats status() until the condition holds, and returns the result."""
        answers: list[dict[str, Any]] = []

        def ask() -> bool:
            answers[:] = [self.status(host)]
            return condition(answers[0])

        _wait(ask, lambda: json.dumps(answers, indent=1))
        return answers[0]

    def measure(self, host: int) -> None:
        """Prints the time of the command, and the time of its processor."""
        walls, busy = [], []
        for _ in range(ROUNDS):
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
            self.status(host)
            walls.append(time.monotonic() - began)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            busy.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        wall, cpu = statistics.median(walls), statistics.median(busy)
        print(f"\n{self.how}, asked on host {host}: {wall:.3f} s, CPU {cpu:.3f} s, of {ROUNDS}")


def _wait(condition: Callable[[], Any], text: Callable[[], str] = str) -> Any:
    deadline = time.monotonic() + 60
    while not (value := condition()):
        assert time.monotonic() < deadline, text()
        time.sleep(0.1)
    return value


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
    with Job(tmp_path, how) as job:
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
    with Job(tmp_path, how) as job:
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
    with Job(tmp_path, "stopped") as job:
        pid = job.pid
        job.until(0, _waits)
        os.kill(pid, signal.SIGSTOP)
        for host in range(LAST_HOST + 1):
            answer = job.until(host, lambda found: found["missing"][0]["state"] == "stopped")
            assert answer["missing"][0]["rank"] == 2
            assert f"kill -CONT {pid}" in answer["diagnosis"][1]
            job.measure(host)


def test_a_host_without_its_link(tmp_path: Path):
    with Job(tmp_path, "cut") as job:
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
