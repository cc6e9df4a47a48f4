"""A job on hosts that are network namespaces, and what `ringdist status` prints about it."""

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
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.net import hosts as net  # support.launched has added the repository to sys.path
from support.launched import preloaded

RANKS, PER_HOST = 4, 2
LAST_HOST = RANKS // PER_HOST - 1
ROUNDS = int(os.environ.get("STATUS_ROUNDS", "1"))


class Job:
    """By default four ranks on two hosts. Rank 2, which is on the second one, does something
    else."""

    def __init__(
        self,
        folder: Path,
        how: str,
        script: str,
        ranks: int = RANKS,
        hosts: int = RANKS // PER_HOST,
    ) -> None:
        self.size, self.per_host = ranks, ranks // hosts
        self.script, self.mark = folder / "trains.py", folder / "pid"
        self.script.write_text(script)
        self.hosts = net.Hosts(hosts, "1gbit")
        self.how = how

    def __enter__(self) -> Job:
        self.hosts.__enter__()
        words = [str(self.script), self.how, str(self.mark)]
        self.ranks = [self._start(rank, words) for rank in range(self.size)]
        return self

    def __exit__(self, *error: Any) -> None:
        if self.mark.exists():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGCONT)
        for one in self.ranks:
            one.kill()
        self.hosts.__exit__(*error)

    def _start(self, rank: int, words: list[str]) -> preloaded.ForkedProcess:
        variables = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(self.size),
            "LOCAL_RANK": str(rank % self.per_host),
            "MASTER_ADDR": self.hosts.address(0),
            "MASTER_PORT": "29500",  # the namespaces are private
            "OMP_NUM_THREADS": "1",
        }
        command = [*self.hosts.enter(rank // self.per_host), sys.executable, *words]
        return preloaded.ForkedProcess(command, env=variables)

    @property
    def pid(self) -> int:
        """Returns the process of rank 2, once it has left the others alone."""
        return int(wait(lambda: self.mark.exists() and self.mark.read_text()))

    def line(self) -> int:
        """Returns the number of the line at which rank 2 is."""
        lines = self.script.read_text().splitlines()
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

        wait(ask, lambda: json.dumps(answers, indent=1))
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


def wait(condition: Callable[[], Any], text: Callable[[], str] = str) -> Any:
    deadline = time.monotonic() + 60
    while not (value := condition()):
        assert time.monotonic() < deadline, text()
        time.sleep(0.1)
    return value
